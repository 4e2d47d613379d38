// What a batch system may have made of a command that starts workers.
#pragma once

#include "absl/status/status.h"

namespace trainctl::cli {

// UsageError when srun, mpirun or torchrun started this command several times: trainctl starts the workers
// itself, and every copy would train.
absl::Status CheckStartedOnce();

// Tells on stderr what of a job of Slurm a run does not use, and that the job's end is the end of what
// `detaches` from it.
void NoteBatchJob(bool detaches);

}  // namespace trainctl::cli
