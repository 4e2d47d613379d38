// Where trainctl-worker is, and running it for a one-process job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "apps/trainctl/model_source.h"
#include "base/status.h"

namespace trainctl::cli {

// The path of this program.
absl::StatusOr<std::string> OwnProgram();
// Next to this program, or where pip installs it (installed_worker.h). EnvironmentError if it is in neither
// place, or if this process's limits are too low for it (CheckWorkerLimits).
absl::StatusOr<std::string> FindWorkerProgram();

// The arguments of a one-process job on a model. Its weights may take seven tenths of the free memory, unless
// another --weight-bytes is appended.
absl::StatusOr<std::vector<std::string>> OneProcessArgs(const std::string& verb, const ModelSource& model);

// Replaces this process by the worker program; returns only when that fails.
absl::Status ExecWorker(const std::vector<std::string>& args);

}  // namespace trainctl::cli
