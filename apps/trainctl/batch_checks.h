// What a batch system may have made of a command that starts workers.
#pragma once

#include "absl/status/status.h"

namespace trainctl::cli {

// UsageError when srun, mpirun or torchrun started this command several times: trainctl starts the workers
// itself, and every copy would train.
absl::Status CheckStartedOnce();

// Within an allocation of Slurm: the run ends with it.
void NoteBatchJob();
// Within an allocation of several nodes, for a run that uses one.
void NoteIdleNodes();

}  // namespace trainctl::cli
