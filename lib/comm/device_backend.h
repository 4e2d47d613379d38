// The collectives that a device's plugin brings.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "device/device.h"

namespace trainctl::comm {

// Collective over `world_size` processes that share `store`. `num_streams` as in DeviceApi::make_backend.
// Errors: WorkerError with the plugin's reason.
absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeDeviceBackend(const device::Device& device,
                                                                    c10::intrusive_ptr<c10d::Store> store,
                                                                    int rank, int world_size,
                                                                    absl::Duration timeout, int num_streams);

}  // namespace trainctl::comm
