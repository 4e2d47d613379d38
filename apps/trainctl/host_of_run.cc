#include "apps/trainctl/host_of_run.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "doctor/detect_device.h"

namespace trainctl::cli {

absl::StatusOr<cluster::Host> HostOfRun(const recipe::Recipe& recipe) {
  TRAINCTL_ASSIGN_OR_RETURN(cluster::Host host, cluster::DetectHost());
  if (recipe.cluster.device == "cpu") return host;
  // Where a driver shows none, or refuses, nothing is known; the planner says what that means for the recipe.
  const absl::StatusOr<doctor::ShownDevices> shown = doctor::FindShownDevices();
  if (!shown.ok() || shown->models.empty()) return host;
  host.accelerator = shown->models.front();
  host.accelerator_memory_bytes = shown->least_memory_bytes;
  return host;
}

absl::Status CheckDeviceIsHere(const recipe::Recipe& recipe, const cluster::Host& host) {
  if (recipe.cluster.device == "cpu" || !host.accelerator.empty()) return absl::OkStatus();
  // A container may have the device without the library that tells of it; then the worker finds out.
  if (PathExists("/dev/nvidiactl")) return absl::OkStatus();
  if (std::getenv("TRAINCTL_DEVICE_PLUGIN") != nullptr) return absl::OkStatus();
  return EnvironmentError(
      absl::StrCat("cluster.device = \"", recipe.cluster.device,
                   "\": no NVIDIA driver shows a device on this machine (`trainctl doctor` says "
                   "more). `trainctl plan` plans for it; to train here, set it to \"cpu\""));
}

}  // namespace trainctl::cli
