// Log messages for the operator of a process, written to stderr on one line each, with the time and level. A
// command's output goes to stdout instead, and errors are returned rather than logged. Thread-safe.
#pragma once

#include "absl/strings/string_view.h"

namespace trainctl {

enum class LogLevel { kInfo, kWarning, kError, kOff };

// Drops messages below `level`, which is kInfo by default.
void SetLogLevel(LogLevel level);

void LogInfo(absl::string_view message);
void LogWarning(absl::string_view message);
void LogError(absl::string_view message);

}  // namespace trainctl
