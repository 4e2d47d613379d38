// Assigns cores and a number of threads to each worker on this machine. A worker's cores are close to each
// other and to its device and, if there are enough, no two workers share a physical core. This matters
// because two unpinned threads that share a core with another busy process can run several times slower.
// Thread-safe.
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

// The locations of a machine's cores and devices, as far as the kernel reports them. A "core" is anything
// that the kernel can pin a thread to, so a physical core with two hardware threads counts as two.
struct Topology {
  struct Place {
    int numa_node = 0;
    int physical_core = 0;  // first hardware thread of the physical core
  };
  std::map<int, Place> cores;
  // NUMA node of each visible device, indexed by local rank; -1 if unknown. Empty if none are known.
  std::vector<int> numa_node_of_device;
};

// Parses the kernel's list format, such as "0-3,8". Ignores entries that are not numbers or that are too
// large for a CPU affinity mask.
std::vector<int> ParseCoreList(absl::string_view text);

// Reads the topology from /sys and /proc/driver/nvidia below `root`, which tests point at another folder.
// `selection` determines which GPUs the workers can see.
Topology ReadTopology(const std::string& root, const cluster::GpuSelection& selection);

// Returns the cores that this process may use (sched_getaffinity), in ascending order.
absl::StatusOr<std::vector<int>> AllowedCores();

// Divides the cores among the workers, giving each `threads_per_worker` cores, or cores / workers by default.
// Where possible, a worker's cores are on one NUMA node and share physical cores only with each other. If the
// NUMA node of every worker's device is known and has enough cores, each worker gets cores of its device's
// node. If there are too few cores, workers share them in round-robin order. Every worker gets at least one
// core.
std::vector<CpuShare> DivideCores(const std::vector<int>& cores, int num_workers,
                                  std::optional<int> threads_per_worker, const Topology& topology = {});

// Returns the slots that a node offers for its workers.
std::vector<rendezvous::Slot> OfferSlots(const std::string& node, const std::vector<int>& cores,
                                         int num_workers, std::optional<int> threads_per_worker);

}  // namespace trainctl::launcher
