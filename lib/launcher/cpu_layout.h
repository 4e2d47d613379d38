// Which cores and how many threads each worker of this machine gets. Two unpinned threads that share
// a core with another busy process can be several times slower. Thread safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/assignment.h"

namespace trainctl::launcher {

struct CpuShare {
  int threads = 1;
  std::vector<int> cores;
};

// The cores this process may use (sched_getaffinity), ascending.
absl::StatusOr<std::vector<int>> AllowedCores();

// Disjoint neighbouring cores for each worker: cores / workers of them, or `threads_per_worker`.
// When there are not enough, cores are shared in turn. A worker has at least one core.
std::vector<CpuShare> DivideCores(const std::vector<int>& cores, int num_workers,
                                  std::optional<int> threads_per_worker);

// A node's places for its workers.
std::vector<rendezvous::Slot> OfferSlots(const std::string& node, const std::vector<int>& cores,
                                         int num_workers, std::optional<int> threads_per_worker);

}  // namespace trainctl::launcher
