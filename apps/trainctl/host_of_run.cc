#include "apps/trainctl/host_of_run.h"

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "base/units.h"
#include "cluster/catalogue.h"
#include "doctor/detect_device.h"

namespace trainctl::cli {

namespace {

// A machine that a test states, so that plans do not hang on this one's free memory.
absl::StatusOr<cluster::Host> ReadHost(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  cluster::Host host;
  TRAINCTL_ASSIGN_OR_RETURN(host.cpu, JsonString(json, "cpu", path));
  TRAINCTL_ASSIGN_OR_RETURN(host.allowed_cores, JsonInt(json, "allowed_cores", path));
  TRAINCTL_ASSIGN_OR_RETURN(host.memory_available_bytes, JsonInt(json, "memory_available_bytes", path));
  TRAINCTL_ASSIGN_OR_RETURN(host.native_bf16, JsonBool(json, "native_bf16", path));
  TRAINCTL_ASSIGN_OR_RETURN(host.accelerator, JsonString(json, "accelerator", path));
  TRAINCTL_ASSIGN_OR_RETURN(host.accelerator_memory_bytes, JsonInt(json, "accelerator_memory_bytes", path));
  return host;
}

}  // namespace

bool SharesDevices() {
  const char* const wanted = std::getenv(cluster::kSharedDevicesVariable);
  return wanted != nullptr && std::string_view(wanted) == "1";
}

absl::StatusOr<cluster::Host> HostOfRun(const recipe::Recipe& recipe) {
  if (const char* stated = std::getenv("TRAINCTL_TEST_HOST"); stated != nullptr) return ReadHost(stated);
  TRAINCTL_ASSIGN_OR_RETURN(cluster::Host host, cluster::DetectHost());
  if (recipe.cluster.device == "cpu") return host;
  host.shares_accelerators = SharesDevices();
  // Where a driver shows none, or refuses, nothing is known; the planner says what that means for the recipe.
  const absl::StatusOr<doctor::ShownDevices> shown = doctor::FindShownDevices();
  if (!shown.ok()) return host;
  // A device of the catalogue is planned for wherever it is.
  if (recipe.cluster.device == recipe::kCudaDevice) TRAINCTL_RETURN_IF_ERROR(shown->selection);
  host.hidden_accelerators = shown->hidden;
  host.num_accelerators = static_cast<int64_t>(shown->models.size());
  if (shown->models.empty()) return host;
  host.accelerator = shown->models.front();
  host.accelerator_memory_bytes = shown->least_memory_bytes;
  return host;
}

absl::Status CheckEnoughAreVisible(const recipe::Recipe& recipe, const cluster::Host& host) {
  const recipe::ClusterConfig& cluster = recipe.cluster;
  if (recipe.launch.backend != "local" || cluster.nodes > 1 || host.hidden_accelerators.empty() ||
      cluster.devices_per_node <= host.num_accelerators ||
      (host.shares_accelerators && host.num_accelerators > 0)) {
    return absl::OkStatus();
  }
  if (host.num_accelerators == 0) {
    return EnvironmentError(absl::StrCat("cluster.device = \"", cluster.device,
                                         "\": ", host.hidden_accelerators,
                                         ". To train on the CPU, set it to \"cpu\""));
  }
  return EnvironmentError(
      absl::StrCat("cluster.devices_per_node = ", cluster.devices_per_node, ": ", host.hidden_accelerators,
                   ". Each worker needs its own GPU; lower the number, or make more GPUs visible"));
}

absl::Status CheckDeviceIsHere(const recipe::Recipe& recipe, const cluster::Host& host) {
  const std::string& wanted = recipe.cluster.device;
  // A plugin that is named is asked itself.
  if (wanted == "cpu" || std::getenv("TRAINCTL_DEVICE_PLUGIN") != nullptr) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(CheckEnoughAreVisible(recipe, host));
  if (host.accelerator.empty()) {
    // A container may have the device without the library that shows it; then the worker finds out.
    if (PathExists("/dev/nvidiactl")) return absl::OkStatus();
    return EnvironmentError(absl::StrCat(
        "cluster.device = \"", wanted,
        "\": the NVIDIA driver reports no device on this machine (run `trainctl doctor` for details). You "
        "can still plan for it with `trainctl plan`; to train on this machine, set it to \"cpu\""));
  }
  if (recipe.cluster.devices_per_node > host.num_accelerators && !host.shares_accelerators) {
    return EnvironmentError(absl::StrCat("cluster.devices_per_node = ", recipe.cluster.devices_per_node,
                                         ": this machine has ", FormatNumberOf(host.num_accelerators, "GPU"),
                                         ". Each worker needs its own GPU; lower the number"));
  }
  if (wanted == recipe::kCudaDevice) return absl::OkStatus();
  const absl::StatusOr<cluster::DeviceMatch> named = cluster::FindDevice(wanted);
  const absl::StatusOr<cluster::DeviceMatch> here = cluster::FindDevice(host.accelerator);
  if (named.ok() && here.ok() && named->device == here->device) return absl::OkStatus();
  return EnvironmentError(absl::StrCat("cluster.device = \"", wanted, "\": this machine has ",
                                       host.accelerator, "; to train on it, set cluster.device to \"",
                                       recipe::kCudaDevice, "\""));
}

}  // namespace trainctl::cli
