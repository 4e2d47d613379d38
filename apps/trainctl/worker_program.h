// Where trainctl-worker is, and running it for a one-process job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "apps/trainctl/choose_checkpoint.h"
#include "base/status.h"

namespace trainctl::cli {

// Beside this program. EnvironmentError when it is not there.
// The path of this program.
absl::StatusOr<std::string> OwnProgram();
absl::StatusOr<std::string> FindWorkerProgram();

// The arguments of a one-process job on a checkpoint. Of its weights it has seven tenths of the memory that
// is free; another --weight-bytes behind them holds instead.
absl::StatusOr<std::vector<std::string>> OneProcessArgs(const std::string& verb,
                                                        const CheckpointChoice& choice);

// Replaces this process by the worker program; returns only when that fails.
absl::Status ExecWorker(const std::vector<std::string>& args);

}  // namespace trainctl::cli
