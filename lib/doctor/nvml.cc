#include "doctor/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <utility>

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
constexpr int kNotFound = 6;
constexpr unsigned kMigEnabled = 1;
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
    if (function == nullptr) return EnvironmentError(absl::StrCat("the NVIDIA driver lacks ", name));
    return absl::OkStatus();
  }

  // Null if the library does not have it.
  template <typename Function>
  Function* FindOptional(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_, name));
  }

 private:
  explicit Library(void* handle) : handle_(handle) {}
  void* handle_;
};

// Reads one device. Names and memory are required; UUIDs and MIG came with later drivers.
class DeviceReader {
 public:
  static absl::StatusOr<DeviceReader> Open(const Library& nvml) {
    DeviceReader reader;
    TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlDeviceGetName", reader.name_));
    TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlDeviceGetMemoryInfo", reader.memory_));
    reader.uuid_ = nvml.FindOptional<int(Device, char*, unsigned)>("nvmlDeviceGetUUID");
    reader.mig_mode_ = nvml.FindOptional<int(Device, unsigned*, unsigned*)>("nvmlDeviceGetMigMode");
    reader.most_instances_ = nvml.FindOptional<int(Device, unsigned*)>("nvmlDeviceGetMaxMigDeviceCount");
    reader.instance_ =
        nvml.FindOptional<int(Device, unsigned, Device*)>("nvmlDeviceGetMigDeviceHandleByIndex");
    reader.gpu_instance_id_ = nvml.FindOptional<int(Device, unsigned*)>("nvmlDeviceGetGpuInstanceId");
    reader.compute_instance_id_ = nvml.FindOptional<int(Device, unsigned*)>("nvmlDeviceGetComputeInstanceId");
    return reader;
  }

  // NVML's error, or kSuccess.
  int Read(Device handle, CudaDevice& device) const {
    if (const int error = ReadOne(handle, device); error != kSuccess) return error;
    unsigned current = 0, pending = 0, most = 0;
    device.in_mig_mode =
        mig_mode_ != nullptr && mig_mode_(handle, &current, &pending) == kSuccess && current == kMigEnabled;
    if (!device.in_mig_mode || instance_ == nullptr || most_instances_ == nullptr) return kSuccess;
    if (const int error = most_instances_(handle, &most); error != kSuccess) return error;
    for (unsigned i = 0; i < std::min(most, kMostDevices); ++i) {
      Device part = nullptr;
      const int error = instance_(handle, i, &part);
      if (error == kNotFound) continue;  // a place that no instance takes
      if (error != kSuccess) return error;
      CudaDevice instance;
      if (const int why = ReadOne(part, instance); why != kSuccess) return why;
      unsigned gpu_instance = 0, compute_instance = 0;
      const bool has_path = !device.uuid.empty() && gpu_instance_id_ != nullptr &&
                            compute_instance_id_ != nullptr &&
                            gpu_instance_id_(part, &gpu_instance) == kSuccess &&
                            compute_instance_id_(part, &compute_instance) == kSuccess;
      if (has_path) {
        instance.instance_path = absl::StrCat("MIG-", device.uuid, "/", gpu_instance, "/", compute_instance);
      }
      device.instances.push_back(std::move(instance));
    }
    return kSuccess;
  }

 private:
  int ReadOne(Device handle, CudaDevice& device) const {
    char text[256] = {0};
    Memory memory = {};
    if (const int error = name_(handle, text, sizeof(text) - 1); error != kSuccess) return error;
    device.name = text;
    if (const int error = memory_(handle, &memory); error != kSuccess) return error;
    device.memory_bytes = static_cast<int64_t>(memory.total);
    device.used_bytes = static_cast<int64_t>(memory.used);
    if (uuid_ != nullptr && uuid_(handle, text, sizeof(text) - 1) == kSuccess) device.uuid = text;
    return kSuccess;
  }

  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*mig_mode_)(Device, unsigned*, unsigned*) = nullptr;
  int (*most_instances_)(Device, unsigned*) = nullptr;
  int (*instance_)(Device, unsigned, Device*) = nullptr;
  int (*gpu_instance_id_)(Device, unsigned*) = nullptr;
  int (*compute_instance_id_)(Device, unsigned*) = nullptr;
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
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlInit_v2", init));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlShutdown", shutdown));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlErrorString", error_text));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlSystemGetDriverVersion", driver_version));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlSystemGetCudaDriverVersion_v2", cuda_version));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlDeviceGetCount_v2", device_count));
  TRAINCTL_RETURN_IF_ERROR(nvml.Find("nvmlDeviceGetHandleByIndex_v2", device_handle));
  TRAINCTL_ASSIGN_OR_RETURN(const DeviceReader reader, DeviceReader::Open(nvml));
  if (const int error = init(); error != kSuccess) {
    return EnvironmentError(absl::StrCat("the NVIDIA driver failed to initialize: ", error_text(error)));
  }
  CudaDriver driver;
  char text[256] = {0};
  unsigned num_devices = 0;
  if (driver_version(text, sizeof(text) - 1) == kSuccess) driver.version = text;
  (void)cuda_version(&driver.cuda_version);
  int error = device_count(&num_devices);
  for (unsigned i = 0; error == kSuccess && i < std::min(num_devices, kMostDevices); ++i) {
    Device handle = nullptr;
    CudaDevice device;
    error = device_handle(i, &handle);
    if (error == kSuccess) error = reader.Read(handle, device);
    if (error == kSuccess) driver.devices.push_back(std::move(device));
  }
  const std::string why = error == kSuccess ? "" : error_text(error);
  (void)shutdown();
  if (error != kSuccess) {
    return EnvironmentError(
        absl::StrCat("the NVIDIA driver cannot query device ", driver.devices.size(), ": ", why));
  }
  return driver;
}

}  // namespace trainctl::doctor
