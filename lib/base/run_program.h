// Runs a program to completion with a time limit and returns its output. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/subprocess.h"

namespace trainctl {

struct ProgramEnd {
  ExitStatus exit;
  bool is_late = false;  // whether it exceeded the time limit and was killed
  // Stdout and stderr as one stream, with surrounding white space removed.
  std::string output;
};

// Runs a program and returns its exit status and output. argv[0] must be a path. Blocks for up to `patience`,
// then kills the program; also kills it once it has printed `max_bytes`. Returns EnvironmentError if it
// cannot be started.
absl::StatusOr<ProgramEnd> RunProgram(const std::vector<std::string>& argv, absl::Duration patience,
                                      size_t max_bytes = 16 << 10);

// Runs a program with `input` on stdin. Keeps the first `max_bytes` of its stderr and discards its stdout.
// The program has its own session. If it exceeds `patience`, its whole process group is killed; otherwise,
// any processes that it leaves behind keep running. argv[0] and errors are as for RunProgram.
absl::StatusOr<ProgramEnd> RunHandler(const std::vector<std::string>& argv, absl::string_view input,
                                      absl::Duration patience, size_t max_bytes = 4 << 10);

}  // namespace trainctl
