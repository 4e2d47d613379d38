// Where trainctl-worker is, and running it for a one-process job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace trainctl::cli {

// Beside this program. EnvironmentError when it is not there.
absl::StatusOr<std::string> FindWorkerProgram();

// Replaces this process by the worker program; returns only when that fails.
absl::Status ExecWorker(const std::vector<std::string>& args);

}  // namespace trainctl::cli
