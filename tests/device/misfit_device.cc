// A plugin that belongs to another program: TRAINCTL_MISFIT_ABI or TRAINCTL_MISFIT_TORCH says how.

#include "kernels/device_api.h"

extern "C" const trainctl::kernels::DeviceApi* trainctl_device_api() {
  static const trainctl::kernels::DeviceApi api = {.abi = TRAINCTL_MISFIT_ABI,
                                                   .table_bytes = sizeof(trainctl::kernels::DeviceApi),
                                                   .name = "misfit",
                                                   .torch_version = TRAINCTL_MISFIT_TORCH};
  return &api;
}
