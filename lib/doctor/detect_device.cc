#include "doctor/detect_device.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
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

absl::StatusOr<DetectedDevice> CpuOf(const Sources& sources, const std::string& hidden) {
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, cluster::DetectHost(sources.root));
  DetectedDevice found;
  found.hidden = hidden;
  found.words =
      absl::StrCat(hidden.empty() ? "no accelerator is visible" : hidden, " -> cpu, ", host.allowed_cores,
                   host.allowed_cores == 1 ? " core, " : " cores, ", FormatBytes(host.memory_total_bytes));
  return found;
}

}  // namespace

absl::StatusOr<ShownDevices> FindShownDevices(const Sources& sources) {
  ShownDevices shown;
  const absl::StatusOr<CudaDriver> driver = ReadCudaDriver(sources.nvml);
  if (!driver.ok() && driver.status().code() != absl::StatusCode::kNotFound) {
    return EnvironmentError(absl::StrCat(driver.status().message(),
                                         "; run `trainctl doctor` for details. Set cluster.device to the "
                                         "device's name, or to \"cpu\" to run without it"));
  }
  shown.source = driver.ok() ? sources.nvml : "/proc/driver/nvidia";
  const std::vector<cluster::ListedGpu> listed = ListGpus(driver, sources.root);
  const absl::StatusOr<cluster::VisibleGpus> visible = cluster::FindVisibleGpus(SelectionOf(sources), listed);
  shown.selection = visible.status();
  if (!visible.ok()) {
    shown.hidden = std::string(visible.status().message());
    return shown;
  }
  shown.hidden = visible->hidden;
  for (const cluster::VisibleGpu& gpu : visible->gpus) {
    shown.models.push_back(ModelOf(gpu, driver, listed));
    if (!driver.ok()) continue;
    const CudaDevice& whole = driver->devices[gpu.gpu];
    const int64_t bytes =
        gpu.instance.has_value() ? whole.instances[*gpu.instance].memory_bytes : whole.memory_bytes;
    int64_t& least = shown.least_memory_bytes;
    least = least == 0 ? bytes : std::min(least, bytes);
  }
  return shown;
}

absl::StatusOr<DetectedDevice> DetectDevice(const Sources& sources) {
  TRAINCTL_ASSIGN_OR_RETURN(const ShownDevices shown, FindShownDevices(sources));
  TRAINCTL_RETURN_IF_ERROR(shown.selection);
  const std::vector<std::string>& models = shown.models;
  if (models.empty()) return CpuOf(sources, shown.hidden);
  const std::string& model = models.front();
  if (std::any_of(models.begin(), models.end(), [&](const std::string& other) { return other != model; })) {
    return UsageError(absl::StrCat("this machine has different kinds of devices (",
                                   absl::StrJoin(models, ", "),
                                   "); set cluster.device to the one to plan for, or select devices of one "
                                   "kind with CUDA_VISIBLE_DEVICES"));
  }
  const absl::StatusOr<cluster::DeviceMatch> match = cluster::FindDevice(absl::StripPrefix(model, "NVIDIA "));
  if (!match.ok()) {
    return UsageError(absl::StrCat("this machine has ", models.size(), " x ", model, ", but ",
                                   match.status().message(),
                                   ". Set cluster.device to the most similar one and override what differs "
                                   "(cluster.memory, cluster.memory_bandwidth, cluster.half_flops; see "
                                   "docs/reference/catalogue.md), or set cluster.device = \"cpu\""));
  }
  DetectedDevice found;
  found.device = match->device->name;
  found.num_devices = static_cast<int64_t>(models.size());
  if (static_cast<double>(shown.least_memory_bytes) < kClearlyLess * match->device->memory_bytes.value) {
    found.memory_bytes = shown.least_memory_bytes;
  }
  const bool is_part = absl::StrContains(model, " MIG ");  // of a GPU
  found.words = absl::StrCat(
      model, " -> ", found.device, ", ", found.num_devices, " per node",
      found.memory_bytes > 0 ? absl::StrCat(" with ", FormatBytes(found.memory_bytes), " each") : "", " (",
      shown.source, ")", shown.hidden.empty() ? "" : "; ", shown.hidden,
      is_part ? absl::StrCat("; ", match->assumption) : "");
  found.hidden = shown.hidden;
  return found;
}

}  // namespace trainctl::doctor
