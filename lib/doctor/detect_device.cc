#include "doctor/detect_device.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/status.h"
#include "base/units.h"
#include "cluster/catalogue.h"
#include "doctor/findings.h"

namespace trainctl::doctor {
namespace {

// Drivers keep some of the memory for themselves and count it in or not; a variant has a quarter less.
constexpr double kClearlyLess = 0.9;

absl::StatusOr<DetectedDevice> CpuOf(const Sources& sources) {
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, cluster::DetectHost(sources.root));
  DetectedDevice found;
  found.words =
      absl::StrCat("no accelerator that a driver shows -> cpu, ", host.allowed_cores,
                   host.allowed_cores == 1 ? " core, " : " cores, ", FormatBytes(host.memory_total_bytes));
  return found;
}

}  // namespace

absl::StatusOr<ShownDevices> FindShownDevices(const Sources& sources) {
  ShownDevices shown;
  const absl::StatusOr<CudaDriver> driver = ReadCudaDriver(sources.nvml);
  if (driver.ok()) {
    shown.source = sources.nvml;
    for (const CudaDevice& device : driver->devices) {
      shown.models.push_back(device.name);
      int64_t& least = shown.least_memory_bytes;
      least = least == 0 ? device.memory_bytes : std::min(least, device.memory_bytes);
    }
    return shown;
  }
  if (driver.status().code() != absl::StatusCode::kNotFound) {
    return EnvironmentError(absl::StrCat(
        driver.status().message(),
        "; trainctl doctor says more. Name the device, or set cluster.device = \"cpu\" to do without it"));
  }
  shown.models = DriverModels(sources.root);
  shown.source = "/proc/driver/nvidia";
  return shown;
}

absl::StatusOr<DetectedDevice> DetectDevice(const Sources& sources) {
  TRAINCTL_ASSIGN_OR_RETURN(const ShownDevices shown, FindShownDevices(sources));
  const std::vector<std::string>& models = shown.models;
  if (models.empty()) return CpuOf(sources);
  const std::string& model = models.front();
  if (std::any_of(models.begin(), models.end(), [&](const std::string& other) { return other != model; })) {
    return UsageError(absl::StrCat("the devices of this machine are not alike (", absl::StrJoin(models, ", "),
                                   "); name the one to plan with"));
  }
  const absl::StatusOr<cluster::DeviceMatch> match = cluster::FindDevice(absl::StripPrefix(model, "NVIDIA "));
  if (!match.ok()) {
    return UsageError(absl::StrCat(
        "this machine has ", models.size(), " x ", model, ", and ", match.status().message(),
        ". Name the nearest one and state what differs (cluster.memory, cluster.memory_bandwidth, "
        "cluster.half_flops: docs/reference/catalogue.md), or set cluster.device = \"cpu\""));
  }
  DetectedDevice found;
  found.device = match->device->name;
  found.num_devices = static_cast<int64_t>(models.size());
  if (static_cast<double>(shown.least_memory_bytes) < kClearlyLess * match->device->memory_bytes.value) {
    found.memory_bytes = shown.least_memory_bytes;
  }
  found.words = absl::StrCat(
      model, " -> ", found.device, ", ", found.num_devices, " per node",
      found.memory_bytes > 0 ? absl::StrCat(" with ", FormatBytes(found.memory_bytes), " each") : "", " (",
      shown.source, ")");
  return found;
}

}  // namespace trainctl::doctor
