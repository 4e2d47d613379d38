#include "apps/trainctl/host_of_run.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "doctor/doctor.h"

namespace trainctl::cli {

absl::StatusOr<cluster::Host> HostOfRun(const recipe::Recipe& recipe) {
  TRAINCTL_ASSIGN_OR_RETURN(cluster::Host host, cluster::DetectHost());
  if (recipe.cluster.device == "cpu") return host;
  // Without a driver nothing is known; the planner says what that means for the recipe.
  const absl::StatusOr<doctor::CudaDriver> driver = doctor::ReadCudaDriver(doctor::Sources().nvml);
  if (!driver.ok() || driver->devices.empty()) return host;
  const doctor::CudaDevice& smallest =
      *std::min_element(driver->devices.begin(), driver->devices.end(),
                        [](const auto& a, const auto& b) { return a.memory_bytes < b.memory_bytes; });
  host.accelerator = smallest.name;
  host.accelerator_memory_bytes = smallest.memory_bytes;
  return host;
}

absl::Status CheckDeviceIsHere(const recipe::Recipe& recipe, const cluster::Host& host) {
  if (recipe.cluster.device == "cpu" || !host.accelerator.empty()) return absl::OkStatus();
  if (std::getenv("TRAINCTL_DEVICE_PLUGIN") != nullptr) return absl::OkStatus();
  return EnvironmentError(
      absl::StrCat("cluster.device = \"", recipe.cluster.device,
                   "\": no NVIDIA driver shows a device on this machine (`trainctl doctor` says "
                   "more). `trainctl plan` plans for it; to train here, set it to \"cpu\""));
}

}  // namespace trainctl::cli
