// Writes a command's results to files named by the user, and guards against typos: an existing file is
// replaced only on request, and an input of the command is never replaced. Thread-safe for different files.
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
  bool overwrite = false;           // whether to replace an existing regular file (--force)
  std::vector<std::string> inputs;  // files that must not be replaced, under any of their names
};

enum class OutputKind { kNewFile, kRegularFile, kStream };  // a stream is a device, a pipe, or /dev/stdout

struct OutputTarget {
  std::string path;  // path with links resolved
  OutputKind kind = OutputKind::kNewFile;
};

// Returns the target to which WriteOutputFile would write, without changing anything. Returns UsageError if
// the name is empty or "-", or if the path is a folder, a disk, a socket, one of the inputs, or an existing
// file without `overwrite` (the message names it and --force). Returns EnvironmentError if its folder does
// not exist or is not writable.
absl::StatusOr<OutputTarget> FindOutput(const std::string& path, const OutputRules& rules);

// Creates or replaces a file atomically, keeping the owner and mode of an existing one. Links are followed; a
// device or a pipe is written to directly. Returns the errors of FindOutput, and EnvironmentError if a pipe
// has no reader (without waiting for one).
absl::Status WriteOutputFile(const std::string& path, absl::string_view contents, const OutputRules& rules);

// Whether both names lead to the same file, which need not exist.
bool IsSameFile(const std::string& a, const std::string& b);

}  // namespace trainctl
