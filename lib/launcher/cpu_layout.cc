#include "launcher/cpu_layout.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/status.h"
#include "cluster/kernel_gpus.h"
#include "launcher/worker_contract.h"

namespace trainctl::launcher {
namespace {

constexpr int64_t kMostText = 64 << 10;

std::string TextOf(const std::string& path) { return ReadFile(path, kMostText).value_or(""); }

// NUMA nodes of the GPUs that CUDA shows, in its order. None if the selection cannot be followed: the kernel
// does not list MIG instances, for example.
std::vector<int> NumaNodesOfDevices(const std::string& root, const cluster::GpuSelection& selection) {
  std::vector<cluster::ListedGpu> listed;
  std::vector<int> node_of_listed;
  for (cluster::KernelGpu& found : cluster::ListGpusOfKernel(root)) {
    int node = -1;
    const std::string text =
        TextOf(absl::StrCat(root, "/sys/bus/pci/devices/", found.pci_address, "/numa_node"));
    node_of_listed.push_back(absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &node) ? node : -1);
    listed.push_back(std::move(found.gpu));
  }
  const absl::StatusOr<cluster::VisibleGpus> visible = cluster::FindVisibleGpus(selection, listed);
  std::vector<int> nodes;
  if (!visible.ok()) return nodes;
  for (const cluster::VisibleGpu& gpu : visible->gpus) nodes.push_back(node_of_listed[gpu.gpu]);
  return nodes;
}

// Allowed cores of each NUMA node, and all of them, in the order in which they are given away.
struct SortedCores {
  std::vector<int> all;
  std::map<int, std::vector<int>> of_numa_node;
};

// The hardware threads of a physical core are neighbours; where the physical cores are enough for `wanted`,
// there is but one of each.
SortedCores Sort(const std::vector<int>& cores, const Topology& topology, int wanted) {
  std::map<std::tuple<int, int>, std::vector<int>> threads_of;  // by NUMA node and physical core
  for (const int core : cores) {
    const auto it = topology.cores.find(core);
    const Topology::Place place = it == topology.cores.end() ? Topology::Place{0, core} : it->second;
    threads_of[{place.numa_node, place.physical_core}].push_back(core);
  }
  const bool is_one_each = static_cast<int>(threads_of.size()) >= wanted;
  SortedCores sorted;
  for (const auto& [place, threads] : threads_of) {
    for (const int core : threads) {
      sorted.all.push_back(core);
      sorted.of_numa_node[std::get<0>(place)].push_back(core);
      if (is_one_each) break;
    }
  }
  return sorted;
}

// The NUMA node of each worker's device, if each is known and has `cores_each` cores for each of its workers.
std::optional<std::vector<int>> NumaNodesOfWorkers(const SortedCores& cores, const Topology& topology,
                                                   int num_workers, int cores_each) {
  if (topology.numa_node_of_device.size() < static_cast<size_t>(num_workers)) return std::nullopt;
  std::vector<int> nodes(topology.numa_node_of_device.begin(),
                         topology.numa_node_of_device.begin() + num_workers);
  std::map<int, int> wanted;
  for (const int node : nodes) wanted[node] += cores_each;
  for (const auto& [node, count] : wanted) {
    const auto it = cores.of_numa_node.find(node);
    if (it == cores.of_numa_node.end() || static_cast<int>(it->second.size()) < count) return std::nullopt;
  }
  return nodes;
}

}  // namespace

std::vector<int> ParseCoreList(absl::string_view text) {
  std::vector<int> cores;
  for (const absl::string_view part :
       absl::StrSplit(absl::StripAsciiWhitespace(text), ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> range =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(range.first, &first)) continue;
    if (!absl::SimpleAtoi(range.second, &last)) last = first;
    for (int core = first; core <= std::min(last, CPU_SETSIZE - 1); ++core) cores.push_back(core);
  }
  return cores;
}

absl::StatusOr<std::vector<int>> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return ErrnoError("read", "the allowed cores", errno);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  if (cores.empty()) return EnvironmentError("this process is not allowed to run on any core");
  return cores;
}

Topology ReadTopology(const std::string& root, const cluster::GpuSelection& selection) {
  Topology topology;
  const std::string nodes = root + "/sys/devices/system/node";
  for (const std::string& name : FolderEntries(nodes)) {
    int node = 0;
    if (!absl::StartsWith(name, "node") || !absl::SimpleAtoi(name.substr(4), &node)) continue;
    for (const int core : ParseCoreList(TextOf(absl::StrCat(nodes, "/", name, "/cpulist")))) {
      const std::vector<int> siblings = ParseCoreList(
          TextOf(absl::StrCat(root, "/sys/devices/system/cpu/cpu", core, "/topology/thread_siblings_list")));
      topology.cores[core] = {node, siblings.empty() ? core : siblings.front()};
    }
  }
  topology.numa_node_of_device = NumaNodesOfDevices(root, selection);
  return topology;
}

std::vector<CpuShare> DivideCores(const std::vector<int>& cores, int num_workers,
                                  std::optional<int> threads_per_worker, const Topology& topology) {
  TRAINCTL_CHECK(!cores.empty());
  const int num_cores = static_cast<int>(cores.size());
  const int threads = threads_per_worker.value_or(std::max(1, num_cores / num_workers));
  const int cores_each = std::min(threads, num_cores);
  const SortedCores sorted = Sort(cores, topology, num_workers * cores_each);
  const std::optional<std::vector<int>> near = NumaNodesOfWorkers(sorted, topology, num_workers, cores_each);
  std::map<int, int> num_taken;  // of a NUMA node; of all cores: of node 0
  std::vector<CpuShare> shares(static_cast<size_t>(num_workers));
  for (size_t worker = 0; worker < shares.size(); ++worker) {
    const int node = near ? (*near)[worker] : 0;
    const std::vector<int>& from = near ? sorted.of_numa_node.at(node) : sorted.all;
    CpuShare& share = shares[worker];
    share.threads = threads;
    for (int i = 0; i < cores_each; ++i) {
      share.cores.push_back(from[static_cast<size_t>(num_taken[node]++) % from.size()]);
    }
    std::sort(share.cores.begin(), share.cores.end());
  }
  return shares;
}

std::vector<rendezvous::Slot> OfferSlots(const std::string& node, const std::vector<int>& cores,
                                         int num_workers, std::optional<int> threads_per_worker) {
  std::vector<rendezvous::Slot> slots;
  for (CpuShare& share : DivideCores(cores, num_workers, threads_per_worker,
                                     ReadTopology("", cluster::ReadGpuSelection(std::getenv)))) {
    const int worker_id = static_cast<int>(slots.size());
    slots.push_back({MemberName(node, worker_id), node, worker_id, share.threads, std::move(share.cores)});
  }
  return slots;
}

}  // namespace trainctl::launcher
