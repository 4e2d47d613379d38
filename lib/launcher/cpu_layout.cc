#include "launcher/cpu_layout.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>

#include "base/files.h"
#include "base/status.h"
#include "launcher/worker_contract.h"

namespace trainctl::launcher {

absl::StatusOr<std::vector<int>> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return ErrnoError("read", "the allowed cores", errno);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  if (cores.empty()) return EnvironmentError("this process may use no core");
  return cores;
}

std::vector<CpuShare> DivideCores(const std::vector<int>& cores, int num_workers,
                                  std::optional<int> threads_per_worker) {
  TRAINCTL_CHECK(!cores.empty());
  const int num_cores = static_cast<int>(cores.size());
  const int threads = threads_per_worker.value_or(std::max(1, num_cores / num_workers));
  const int cores_each = std::min(threads, num_cores);
  std::vector<CpuShare> shares(num_workers);
  for (int worker = 0; worker < num_workers; ++worker) {
    CpuShare& share = shares[worker];
    share.threads = threads;
    for (int i = 0; i < cores_each; ++i) share.cores.push_back(cores[(worker * cores_each + i) % num_cores]);
    std::sort(share.cores.begin(), share.cores.end());
  }
  return shares;
}

std::vector<rendezvous::Slot> OfferSlots(const std::string& node, const std::vector<int>& cores,
                                         int num_workers, std::optional<int> threads_per_worker) {
  std::vector<rendezvous::Slot> slots;
  for (CpuShare& share : DivideCores(cores, num_workers, threads_per_worker)) {
    const int worker_id = static_cast<int>(slots.size());
    slots.push_back({MemberName(node, worker_id), node, worker_id, share.threads, std::move(share.cores)});
  }
  return slots;
}

}  // namespace trainctl::launcher
