// Whether the collectives and messages of comm::Group, as the trainer calls them, give on this machine what
// the host computes from the same inputs: on every group of ranks that a mesh has, from buffers of 4 bytes to
// `max_bytes`, on the computing stream and on streams next to it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace trainctl::trainer {

struct CollectiveCheck {
  std::string plugin_path;  // empty: the CPU
  int rank = 0;
  int world_size = 2;
  std::string store_path;  // a file that the ranks of this check share, and no other check
  int64_t max_bytes = int64_t{64} << 20;
  absl::Duration timeout = absl::Minutes(1);  // per collective
  // The rank that changes one bit of what it received, so that its checks must fail; -1 if there is none. For
  // tests.
  int plants_error = -1;
};

// One process for each rank, collective. Several ranks may share a device. Rank 0 prints a line of JSON for
// each check to stdout: {"check": ..., "ok": ...}. 0: all of them hold, 1: not. EnvironmentError: the device
// cannot be used. WorkerError names the collective that failed.
absl::StatusOr<int> CheckCollectives(const CollectiveCheck& options);

}  // namespace trainctl::trainer
