// Finding, checking and opening a device plugin.

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/headeronly/version.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/device.h"
#include "kernels/device_api.h"

namespace trainctl::device {
namespace {

constexpr size_t kReasonBytes = 1024;

// Why `api` does not fit this program; empty: it does. Nothing but the first field may be read before that
// has been compared.
std::string Mismatch(const kernels::DeviceApi& api) {
  if (api.abi != kernels::kDeviceAbi) {
    return absl::StrCat("its table is version ", api.abi, ", this program's is ", kernels::kDeviceAbi);
  }
  if (api.table_bytes != sizeof(kernels::DeviceApi)) {
    return absl::StrCat("its table has ", api.table_bytes, " bytes, this program's has ",
                        sizeof(kernels::DeviceApi));
  }
  if (std::strcmp(api.torch_version, TORCH_VERSION) != 0) {
    return absl::StrCat("it was made for LibTorch ", api.torch_version, ", this program for ", TORCH_VERSION);
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Device>> Device::Open(const std::string& plugin_path, Choice choice) {
  // Its libraries' symbols become everyone's: LibTorch's device part registers itself with the CPU part.
  void* library = dlopen(plugin_path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return EnvironmentError(absl::StrCat("the device plugin cannot be opened: ", dlerror()));
  }
  const auto function =
      reinterpret_cast<kernels::DeviceApiFunction>(dlsym(library, kernels::kDeviceApiSymbol));
  if (function == nullptr) {
    return EnvironmentError(
        absl::StrCat(plugin_path, " is not a device plugin: it has no ", kernels::kDeviceApiSymbol));
  }
  const kernels::DeviceApi* api = function();
  if (const std::string mismatch = Mismatch(*api); !mismatch.empty()) {
    return EnvironmentError(absl::StrCat(plugin_path, " does not belong to this program: ", mismatch,
                                         ". Install the plugin and trainctl-worker of one build"));
  }
  char reason[kReasonBytes] = "";
  int count = 0;
  if (api->count_devices(&count, reason, sizeof(reason)) != 0) {
    return EnvironmentError(absl::StrCat("no ", api->name, " device can be used: ", reason));
  }
  const int ordinal = choice.is_shared && count > 0 ? choice.ordinal % count : choice.ordinal;
  if (ordinal < 0 || ordinal >= count) {
    return EnvironmentError(absl::StrCat("there is no ", api->name, " device ", ordinal, " for this worker: ",
                                         count, " can be used here. Lower cluster.devices_per_node"));
  }
  at::globalContext().setDeterministicAlgorithms(choice.deterministic, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  kernels::DeviceProperties properties;
  if (api->open(ordinal, &properties, reason, sizeof(reason)) != 0) {
    return EnvironmentError(absl::StrCat(api->name, " device ", ordinal, " cannot be used: ", reason));
  }
  return std::unique_ptr<const Device>(new Device(api, properties, ordinal));
}

}  // namespace trainctl::device
