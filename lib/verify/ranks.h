// Processes that run a trial together.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace trainctl::verify {

// Forks a process for each rank, before this one has used LibTorch: `body` is called in each, on one thread,
// and what it prints comes out. They end with this process. The first failure ends the others, by their ids,
// and is returned with its rank.
absl::Status RunRanks(int world_size, absl::FunctionRef<absl::Status(int rank)> body);

}  // namespace trainctl::verify
