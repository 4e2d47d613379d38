// Runs the processes of a trial on this machine.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "comm/communicator.h"

namespace trainctl::verify {

// Forks a process for each rank and waits for all of them. This process must not have used LibTorch yet.
// `body` runs in each process with a single LibTorch thread, and its output goes to this process's output.
// The processes end if this one ends. The first failure ends the other processes, and is returned as a
// WorkerError with its rank.
absl::Status RunRanks(int world_size, absl::FunctionRef<absl::Status(int rank)> body);

// Like RunRanks, but passes `body` a CPU communicator between the processes and a group of all of them. The
// memory of their tensors is counted. The ranks' store is always removed, however they end.
using TogetherBody = absl::FunctionRef<absl::Status(comm::Communicator& communicator, comm::Group& world)>;
absl::Status RunTogether(int world_size, TogetherBody body);

}  // namespace trainctl::verify
