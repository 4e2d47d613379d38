// Creates the NCCL backend of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainctl::kernels {

// Implements DeviceApi::make_backend.
void* MakeNcclBackend(void* store, int rank, int world_size, int64_t timeout_ms, int num_streams,
                      char* reason, size_t reason_bytes);

}  // namespace trainctl::kernels
