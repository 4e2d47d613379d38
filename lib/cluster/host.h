// What this machine gives to a run: cores, memory and what its CPU can do. Reads /proc, cgroups and
// the process's affinity mask; changes nothing. Thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(cluster::Host host, cluster::DetectHost());
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl::cluster {

// If it is "1" in the environment of `plan` and `launch`, a node may have more workers than devices.
inline constexpr char kSharedDevicesVariable[] = "TRAINCTL_TEST_SHARED_DEVICES";

struct Host {
  std::string name;
  std::string cpu;                     // model name, for reports
  int64_t allowed_cores = 1;           // affinity mask, cut by the cgroup's quota (rounded up)
  int64_t memory_total_bytes = 0;      // of the machine, cut by the cgroup's limit
  int64_t memory_available_bytes = 0;  // could be allocated now without swapping
  bool native_bf16 = false;            // AVX512-BF16, AMX-BF16 or the Arm equivalent
  // What a driver shows to a run, for those who asked it (lib/doctor); DetectHost does not.
  std::string accelerator;               // "NVIDIA H100 80GB HBM3"; empty: none, or nobody asked
  int64_t accelerator_memory_bytes = 0;  // of the smallest
  int64_t num_accelerators = 0;          // not in plans, as is what follows
  bool shares_accelerators = false;      // for tests: several workers may use one
  std::string hidden_accelerators;       // what a run does not see and why (cluster::VisibleGpus)
  bool operator==(const Host&) const = default;
};

// Both versions of cgroups, each limit of every enclosing group. `root` is where /proc and /sys are
// found; tests give a folder of their own. EnvironmentError when /proc/meminfo cannot be read.
absl::StatusOr<Host> DetectHost(const std::string& root = "");

}  // namespace trainctl::cluster
