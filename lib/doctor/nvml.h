// NVIDIA's driver as its own library tells it: versions and devices. Opened when asked for, so that nothing
// links with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainctl::doctor {

// A GPU, or a MIG instance of one.
struct CudaDevice {
  std::string name;
  int64_t memory_bytes = 0;
  int64_t used_bytes = 0;
  std::string uuid = {};  // "GPU-<uuid>" or "MIG-<uuid>"; empty if the driver does not report it
  bool in_mig_mode = false;
  std::vector<CudaDevice> instances = {};  // of a GPU in MIG mode
  std::string instance_path = {};          // of a MIG instance; as in cluster::MigInstance
};

struct CudaDriver {
  std::string version;              // "580.65.06"
  int cuda_version = 0;             // the newest CUDA that it runs: 13000 is 13.0
  std::vector<CudaDevice> devices;  // GPUs by their PCI address, as nvidia-smi numbers them
};

// NotFoundError without the library; EnvironmentError with its own message where it is there and refuses.
absl::StatusOr<CudaDriver> ReadCudaDriver(const std::string& library);

}  // namespace trainctl::doctor
