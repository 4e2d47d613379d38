#include "comm/device_backend.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/device_api.h"

namespace trainctl::comm {

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeDeviceBackend(const device::Device& device,
                                                                    c10::intrusive_ptr<c10d::Store> store,
                                                                    int rank, int world_size,
                                                                    absl::Duration timeout, int num_streams) {
  char reason[1024] = "";
  void* backend = device.api()->make_backend(
      store.get(), rank, world_size, absl::ToInt64Milliseconds(timeout), num_streams, reason, sizeof(reason));
  if (backend == nullptr) {
    return WorkerError(
        absl::StrCat("rank ", rank, " cannot connect its device to ", world_size - 1, " others: ", reason));
  }
  return c10::intrusive_ptr<c10d::Backend>::reclaim(static_cast<c10d::Backend*>(backend));
}

}  // namespace trainctl::comm
