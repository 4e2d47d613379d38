#include "doctor/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::doctor {
namespace {

// The few entries of nvml.h that are used, by their published binary interface.
using Device = void*;
struct Memory {
  unsigned long long total, free, used;
};
constexpr int kSuccess = 0;
constexpr unsigned kMostDevices = 1024;

class Library {
 public:
  static absl::StatusOr<std::unique_ptr<Library>> Open(const std::string& name) {
    void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const why = ::dlerror();
      return absl::NotFoundError(why == nullptr ? name : why);
    }
    return std::unique_ptr<Library>(new Library(handle));
  }
  Library(const Library&) = delete;
  ~Library() { ::dlclose(handle_); }

  template <typename Function>
  absl::Status Find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(::dlsym(handle_, name));
    if (function == nullptr) return EnvironmentError(absl::StrCat("NVIDIA's driver has no ", name));
    return absl::OkStatus();
  }

 private:
  explicit Library(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace

absl::StatusOr<CudaDriver> ReadCudaDriver(const std::string& library) {
  absl::StatusOr<std::unique_ptr<Library>> opened = Library::Open(library);
  if (!opened.ok()) return opened.status();
  const Library& nvml = **opened;
  int (*init)();
  int (*shutdown)();
  const char* (*error_text)(int);
  int (*driver_version)(char*, unsigned);
  int (*cuda_version)(int*);
  int (*device_count)(unsigned*);
  int (*device_handle)(unsigned, Device*);
  int (*device_name)(Device, char*, unsigned);
  int (*device_memory)(Device, Memory*);
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlInit_v2", init));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlShutdown", shutdown));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlErrorString", error_text));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlSystemGetDriverVersion", driver_version));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlSystemGetCudaDriverVersion_v2", cuda_version));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlDeviceGetCount_v2", device_count));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlDeviceGetHandleByIndex_v2", device_handle));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlDeviceGetName", device_name));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlDeviceGetMemoryInfo", device_memory));
  if (const int error = init(); error != kSuccess) {
    return EnvironmentError(absl::StrCat("NVIDIA's driver does not start: ", error_text(error)));
  }
  CudaDriver driver;
  char text[256] = {0};
  unsigned num_devices = 0;
  if (driver_version(text, sizeof(text) - 1) == kSuccess) driver.version = text;
  (void)cuda_version(&driver.cuda_version);
  int error = device_count(&num_devices);
  for (unsigned i = 0; error == kSuccess && i < std::min(num_devices, kMostDevices); ++i) {
    Device device = nullptr;
    Memory memory = {};
    char name[256] = {0};
    error = device_handle(i, &device);
    if (error == kSuccess) error = device_name(device, name, sizeof(name) - 1);
    if (error == kSuccess) error = device_memory(device, &memory);
    if (error == kSuccess) {
      driver.devices.push_back({name, static_cast<int64_t>(memory.total), static_cast<int64_t>(memory.used)});
    }
  }
  const std::string why = error == kSuccess ? "" : error_text(error);
  (void)shutdown();
  if (error != kSuccess) {
    return EnvironmentError(
        absl::StrCat("NVIDIA's driver cannot tell device ", driver.devices.size(), ": ", why));
  }
  return driver;
}

}  // namespace trainctl::doctor
