// Detects this machine's resources for a run: cores, memory and CPU features. Reads /proc, cgroups and the
// process's affinity mask, without changing anything. Thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(cluster::Host host, cluster::DetectHost());
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl::cluster {

// If this variable is "1" in the environment of `plan` and `launch`, a node may have more workers than
// devices.
inline constexpr char kSharedDevicesVariable[] = "TRAINCTL_TEST_SHARED_DEVICES";

struct Host {
  std::string name;
  // Model name of the CPU, to display.
  std::string cpu;
  // Cores in the affinity mask, limited by the cgroup's quota (rounded up).
  int64_t allowed_cores = 1;
  // The machine's memory, limited by the cgroup.
  int64_t memory_total_bytes = 0;
  // Memory that can be allocated now without swapping.
  int64_t memory_available_bytes = 0;
  // File that sets the cgroup's limit ("memory.high"); empty if there is no limit.
  std::string memory_limit;
  // Whether the CPU supports AVX512-BF16, AMX-BF16 or the Arm equivalent.
  bool native_bf16 = false;
  // The remaining fields describe the devices that a run can use. Callers that query the driver (lib/doctor)
  // set them; DetectHost does not.

  // For example, "NVIDIA H100 80GB HBM3"; empty if there are no devices or the driver was not queried.
  std::string accelerator;
  // Memory of the device with the least memory.
  int64_t accelerator_memory_bytes = 0;
  // Number of devices. Plans do not store this field or the next two.
  int64_t num_accelerators = 0;
  // Whether several workers may share a device, for tests.
  bool shares_accelerators = false;
  // Devices that are hidden from a run, and the reason (see cluster::VisibleGpus).
  std::string hidden_accelerators;
  bool operator==(const Host&) const = default;
};

// Detects this machine. Supports both cgroup versions and applies the limits of every enclosing group. `root`
// is the folder that contains proc and sys; only tests set it. Returns EnvironmentError if /proc/meminfo
// cannot be read.
absl::StatusOr<Host> DetectHost(const std::string& root = "");

}  // namespace trainctl::cluster
