// Lists NVIDIA GPUs from the kernel module's files in /proc, for machines and containers without the driver
// library. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "cluster/visible_gpus.h"

namespace trainctl::cluster {

struct KernelGpu {
  std::string pci_address;  // "0000:1b:00.0"
  ListedGpu gpu;            // the GPU without its MIG instances, which /proc does not list
};

// Returns the GPUs sorted by PCI address, as in nvidia-smi, or an empty list if the module is not loaded.
// `root` is a prefix of /proc, for tests.
std::vector<KernelGpu> ListGpusOfKernel(const std::string& root);

}  // namespace trainctl::cluster
