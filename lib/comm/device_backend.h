// Creates the collectives of a device's plugin, such as NCCL.
#pragma once

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "device/device.h"

// Its headers include all of ATen.
namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainctl::comm {

// Collective over `world_size` processes that share `store`. `device` must not be the CPU. `timeout` applies
// to each collective. `num_streams` is the largest number of streams on which this process uses such backends
// at the same time (see DeviceApi::make_backend). Returns WorkerError with the plugin's reason.
absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeDeviceBackend(const device::Device& device,
                                                                    c10::intrusive_ptr<c10d::Store> store,
                                                                    int rank, int world_size,
                                                                    absl::Duration timeout, int num_streams);

}  // namespace trainctl::comm
