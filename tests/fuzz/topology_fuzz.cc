// Fuzzes lists of cores as /sys has them, and what is made of them: the first line are the cores that may be
// used, each line after it a NUMA node's. Every worker gets cores, and none that may not be used.

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/status.h"
#include "launcher/cpu_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace trainctl;
  using namespace trainctl::launcher;
  if (size_bytes == 0) return 0;
  const int num_workers = 1 + data[0] % 16;
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::string_view(reinterpret_cast<const char*>(data + 1), size_bytes - 1), '\n');
  std::vector<int> allowed = ParseCoreList(lines[0]);
  for (const int core : allowed) TRAINCTL_CHECK(core >= 0 && core < CPU_SETSIZE);
  std::sort(allowed.begin(), allowed.end());
  allowed.erase(std::unique(allowed.begin(), allowed.end()), allowed.end());
  Topology topology;
  for (size_t node = 1; node < lines.size(); ++node) {
    for (const int core : ParseCoreList(lines[node])) {
      topology.cores[core] = {static_cast<int>(node), core / 2};
    }
    topology.numa_node_of_device.push_back(static_cast<int>(node));
  }
  if (allowed.empty()) return 0;
  const std::vector<CpuShare> shares = DivideCores(allowed, num_workers, std::nullopt, topology);
  TRAINCTL_CHECK(static_cast<int>(shares.size()) == num_workers);
  for (const CpuShare& share : shares) {
    TRAINCTL_CHECK(share.threads >= 1 && !share.cores.empty());
    TRAINCTL_CHECK(std::includes(allowed.begin(), allowed.end(), share.cores.begin(), share.cores.end()));
  }
  return 0;
}
