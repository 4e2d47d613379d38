// Files that a person names for a command's results. A slip of the pen costs nothing: a file that exists is
// replaced only on request, and what the command reads never. Thread safe unless two name the same file.
//
//   const OutputRules rules = {.overwrite = options.force, .inputs = {options.recipe}};
//   TRAINCTL_RETURN_IF_ERROR(FindOutput(options.out, rules).status());  // before long work
//   ...
//   TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(options.out, text, rules));
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct OutputRules {
  bool overwrite = false;           // --force: a regular file that exists is replaced
  std::vector<std::string> inputs;  // never replaced, under whatever name
};

enum class OutputKind { kNewFile, kRegularFile, kStream };  // stream: a device, a pipe, /dev/stdout

struct OutputTarget {
  std::string path;  // where the links of the name end
  OutputKind kind = OutputKind::kNewFile;
};

// What WriteOutputFile would write to; changes nothing. UsageError: no name, "-", a folder, a disk, a socket,
// one of the inputs, or a file that exists without `overwrite` (the message names it and --force).
// EnvironmentError: its folder is not there or not writable.
absl::StatusOr<OutputTarget> FindOutput(const std::string& path, const OutputRules& rules);

// A file appears or is replaced in one step, and keeps its owner and mode; a link stays, and where it leads
// is written; a device or a pipe is written to. Errors as above; also EnvironmentError for a pipe that nobody
// reads, which is not waited for.
absl::Status WriteOutputFile(const std::string& path, absl::string_view contents, const OutputRules& rules);

// Both names lead to one file, which need not exist.
bool IsSameFile(const std::string& a, const std::string& b);

}  // namespace trainctl
