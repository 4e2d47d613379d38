// Messages for the person who looks after a process: one line each on stderr, with time and level.
// What a command reports goes to stdout and not through here; errors are returned, not logged.
// Thread safe.
#pragma once

#include "absl/strings/string_view.h"

namespace trainctl {

enum class LogLevel { kInfo, kWarning, kError, kOff };

// Messages below `level` are dropped. By default: kInfo.
void SetLogLevel(LogLevel level);

void LogInfo(absl::string_view message);
void LogWarning(absl::string_view message);
void LogError(absl::string_view message);

}  // namespace trainctl
