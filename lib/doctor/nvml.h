// Reads versions and devices from the NVIDIA driver's library. The library is loaded on demand, so no program
// links against it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainctl::doctor {

// A GPU or a MIG instance.
struct CudaDevice {
  std::string name;
  int64_t memory_bytes = 0;
  int64_t used_bytes = 0;
  std::string uuid = {};  // "GPU-<uuid>" or "MIG-<uuid>"; empty if the driver does not report it
  bool in_mig_mode = false;
  std::vector<CudaDevice> instances = {};  // MIG instances, if the GPU is in MIG mode
  std::string instance_path = {};          // set for a MIG instance; see cluster::MigInstance
};

struct CudaDriver {
  std::string version;  // for example "580.65.06"
  // Latest CUDA version that the driver supports; 13000 means 13.0.
  int cuda_version = 0;
  std::vector<CudaDevice> devices;  // ordered by PCI address, as in nvidia-smi
};

// Queries the driver's library at the path or name `library`. Returns NotFoundError if there is no such
// library, or EnvironmentError with the library's own message if it fails.
absl::StatusOr<CudaDriver> ReadCudaDriver(const std::string& library);

}  // namespace trainctl::doctor
