// Which cores and how many threads each worker of this machine gets: near each other, near its device, and no
// two workers on the two threads of one core where there are enough. Two unpinned threads that share a core
// with another busy process can be several times slower. Thread safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cluster/visible_gpus.h"
#include "rendezvous/assignment.h"

namespace trainctl::launcher {

struct CpuShare {
  int threads = 1;
  std::vector<int> cores;
};

// Where the cores and the devices of a machine lie, as far as its kernel tells. "Core" is what the kernel can
// pin to: of a processor with two hardware threads for each physical core, one of them.
struct Topology {
  struct Place {
    int numa_node = 0;
    int physical_core = 0;  // the first of the hardware threads that share it
  };
  std::map<int, Place> cores;
  std::vector<int>
      numa_node_of_device;  // of visible devices, by local rank; -1: unknown. Empty: none is known
};

// "0-3,8", as the kernel writes it. What is no number, or beyond what a core can be pinned to, is left out.
std::vector<int> ParseCoreList(absl::string_view text);

// Reads /sys and /proc/driver/nvidia below `root`; tests give a folder of their own. `selection` says which
// of the GPUs that the kernel lists a worker sees.
Topology ReadTopology(const std::string& root, const cluster::GpuSelection& selection);

// The cores this process may use (sched_getaffinity), ascending.
absl::StatusOr<std::vector<int>> AllowedCores();

// Disjoint cores for each worker: cores / workers of them, or `threads_per_worker`; those of a NUMA node and
// of a physical core next to each other. Where it is known on which NUMA node the device of each worker is,
// and each has cores enough, a worker gets cores of that one. When there are not enough, cores are shared in
// turn. A worker has at least one core.
std::vector<CpuShare> DivideCores(const std::vector<int>& cores, int num_workers,
                                  std::optional<int> threads_per_worker, const Topology& topology = {});

// A node's places for its workers.
std::vector<rendezvous::Slot> OfferSlots(const std::string& node, const std::vector<int>& cores,
                                         int num_workers, std::optional<int> threads_per_worker);

}  // namespace trainctl::launcher
