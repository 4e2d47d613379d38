// Creates the collectives of a device's plugin, such as NCCL.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/c10d.h"
#include "device/device.h"

namespace trainctl::comm {

// Collective over `world_size` processes that share `store`. `device` must not be the CPU. `timeout` applies
// to each collective. `num_streams` is the largest number of streams on which this process uses such backends
// at the same time (see DeviceApi::make_backend). Returns WorkerError with the plugin's reason.
absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeDeviceBackend(const device::Device& device,
                                                                    c10::intrusive_ptr<c10d::Store> store,
                                                                    int rank, int world_size,
                                                                    absl::Duration timeout, int num_streams);

}  // namespace trainctl::comm
