// Checks the collectives and messages of comm::Group on this machine, called as the trainer calls them. Each
// result must equal the host's own computation from the same inputs. Covers every group of ranks that a mesh
// of this size can have, with buffers from 4 bytes to `max_bytes`. Uses both the compute stream and separate
// streams.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace trainctl::trainer {

struct CollectiveCheck {
  std::string plugin_path;  // device plugin; empty to check the CPU
  int rank = 0;
  int world_size = 2;
  std::string store_path;  // file through which the ranks connect; no other check may use it
  int64_t max_bytes = int64_t{64} << 20;
  absl::Duration timeout = absl::Minutes(1);  // per collective
  // For tests: the rank that flips one bit of its results, so that its checks must fail; -1 for none.
  int plants_error = -1;
};

// Runs the checks. Collective over `world_size` processes, one per rank; several ranks may share a device.
// Rank 0 prints one line of JSON per check to stdout: {"check": ..., "ok": ...}, with the number of wrong
// ranks if there are any. Returns 0 if all results are right, else 1. Returns EnvironmentError if the device
// cannot be used, and WorkerError if a collective fails.
absl::StatusOr<int> CheckCollectives(const CollectiveCheck& options);

}  // namespace trainctl::trainer
