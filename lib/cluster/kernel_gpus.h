// NVIDIA's GPUs as the kernel's module lists them in /proc, for machines and containers without the driver's
// own library. Thread safe.
#pragma once

#include <string>
#include <vector>

#include "cluster/visible_gpus.h"

namespace trainctl::cluster {

struct KernelGpu {
  std::string pci_address;  // "0000:1b:00.0"
  ListedGpu gpu;            // its MIG instances are not known
};

// By PCI address, as nvidia-smi numbers GPUs; empty if there is no module. `root` comes before /proc; tests
// give a folder of their own.
std::vector<KernelGpu> ListGpusOfKernel(const std::string& root);

}  // namespace trainctl::cluster
