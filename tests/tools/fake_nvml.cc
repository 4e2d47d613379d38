// Stands for NVIDIA's libnvidia-ml.so.1, with the binary interface of its nvml.h. FAKE_NVML says what it
// shows: "2" devices, "0" devices, "refuse": nvmlInit_v2 fails, "lost": the second device does, "unlike": its
// second device has another name. FAKE_NVML_NAME is the name of the devices, FAKE_NVML_MEMORY their bytes.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Memory {
  unsigned long long total, free, used;
};

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
  static char devices[2];
  if (index == 1 && std::strcmp(Mode(), "lost") == 0) return 15;
  *device = &devices[index];
  return 0;
}

int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  static void* first = device;  // the order of calls is that of the devices
  const bool is_other = device != first && std::strcmp(Mode(), "unlike") == 0;
  const char* const other = std::getenv("FAKE_NVML_NAME");
  std::snprintf(name, length, "%s",
                is_other           ? "NVIDIA L4"
                : other != nullptr ? other
                                   : "NVIDIA H100 80GB HBM3");
  return 0;
}

int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  const bool is_used = std::getenv("FAKE_NVML_USED") != nullptr;
  const char* const bytes = std::getenv("FAKE_NVML_MEMORY");
  memory->total = bytes == nullptr ? 85520809984 : std::strtoull(bytes, nullptr, 10);
  memory->used = is_used ? 40000000000 : 500000000;
  memory->free = memory->total - memory->used;
  return 0;
}

}  // extern "C"
