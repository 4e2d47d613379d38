// Runs a program to its end and keeps what it prints, for at most a given time. Thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/subprocess.h"

namespace trainctl {

struct ProgramEnd {
  ExitStatus exit;
  bool is_late = false;  // it did not end in time, and was killed
  std::string output;    // stdout and stderr as they came, without space around them
};

// argv[0]: a path. One that prints `max_bytes` is killed. EnvironmentError: it cannot be started.
absl::StatusOr<ProgramEnd> RunProgram(const std::vector<std::string>& argv, absl::Duration patience,
                                      size_t max_bytes = 16 << 10);

}  // namespace trainctl
