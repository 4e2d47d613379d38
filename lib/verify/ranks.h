// Processes that run a trial together.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "comm/communicator.h"

namespace trainctl::verify {

// Forks a process for each rank, before this one has used LibTorch: `body` is called in each, on one thread,
// and what it prints comes out. They end with this process. The first failure ends the others, by their ids,
// and is returned with its rank.
absl::Status RunRanks(int world_size, absl::FunctionRef<absl::Status(int rank)> body);

// The same with a communicator of the CPU between them, and a group of all; tensors are counted. Nothing is
// left of the store that they meet at, however they end.
using TogetherBody = absl::FunctionRef<absl::Status(comm::Communicator& communicator, comm::Group& world)>;
absl::Status RunTogether(int world_size, TogetherBody body);

}  // namespace trainctl::verify
