// Stands for NVIDIA's libnvidia-ml.so.1, with the binary interface of its nvml.h. FAKE_NVML says what it
// shows: "2" devices, "0" devices, "refuse": nvmlInit_v2 fails, "lost": the second device does, "unlike": its
// second device has another name, "mig": the first is in MIG mode and has two instances. FAKE_NVML_NAME is
// the name of the devices, FAKE_NVML_MEMORY their bytes. With FAKE_NVML_NO_UUIDS it is a driver without
// UUIDs.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Memory {
  unsigned long long total, free, used;
};

constexpr int kNotSupported = 3, kNotFound = 6;

// Handles: their addresses.
char gpus[2];
char instances[2];  // of the first GPU

bool IsInstance(const void* device) { return device == &instances[0] || device == &instances[1]; }

const char* Mode() {
  const char* const mode = std::getenv("FAKE_NVML");
  return mode == nullptr ? "2" : mode;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return std::strcmp(Mode(), "refuse") == 0 ? 18 : 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int error) {
  return error == 18 ? "Driver/library version mismatch" : "GPU is lost";
}

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.65.06");
  return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = std::getenv("FAKE_NVML_CUDA") == nullptr ? 13000 : std::atoi(std::getenv("FAKE_NVML_CUDA"));
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = std::strcmp(Mode(), "0") == 0 ? 0 : 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index == 1 && std::strcmp(Mode(), "lost") == 0) return 15;
  *device = &gpus[index];
  return 0;
}

int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  const bool is_other = device == &gpus[1] && std::strcmp(Mode(), "unlike") == 0;
  const char* const other = std::getenv("FAKE_NVML_NAME");
  std::snprintf(name, length, "%s%s",
                is_other           ? "NVIDIA L4"
                : other != nullptr ? other
                                   : "NVIDIA H100 80GB HBM3",
                IsInstance(device) ? " MIG 1g.10gb" : "");
  return 0;
}

// The GPUs' begin alike: GPU-1a..., GPU-1b....
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  if (std::getenv("FAKE_NVML_NO_UUIDS") != nullptr) return kNotSupported;
  const bool is_first = device == &gpus[0] || device == &instances[0];
  std::snprintf(uuid, length, "%s-1%c111111-2222-3333-4444-555555555555", IsInstance(device) ? "MIG" : "GPU",
                is_first ? 'a' : 'b');
  return 0;
}

int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  if (std::strcmp(Mode(), "mig") != 0) return kNotSupported;
  *current = *pending = device == &gpus[0] ? 1 : 0;
  return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return 0;
}

// They need not be next to each other.
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** device) {
  if (index != 1 && index != 4) return kNotFound;
  *device = &instances[index == 1 ? 0 : 1];
  return 0;
}

int nvmlDeviceGetGpuInstanceId(void* device, unsigned* id) {
  *id = device == &instances[0] ? 7 : 9;
  return 0;
}

int nvmlDeviceGetComputeInstanceId(void*, unsigned* id) {
  *id = 0;
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  const bool is_used = std::getenv("FAKE_NVML_USED") != nullptr;
  const char* const bytes = std::getenv("FAKE_NVML_MEMORY");
  memory->total = bytes == nullptr ? 85520809984 : std::strtoull(bytes, nullptr, 10);
  if (IsInstance(device)) memory->total /= 8;
  memory->used = is_used ? 40000000000 : 500000000;
  memory->free = memory->total - memory->used;
  return 0;
}

}  // extern "C"
