#include "kernels/cuda/nccl_backend.h"

#define USE_C10D_NCCL
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "kernels/cuda/nccl_blocks.h"
#include "kernels/cuda/nccl_version.h"

namespace trainctl::kernels {
namespace {

// Of the library that LibTorch has loaded; 0: not known.
int LoadedNccl() {
  const auto get_version = reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  int version = 0;
  return get_version != nullptr && get_version(&version) == ncclSuccess ? version : 0;
}

int Multiprocessors() {
  int device = 0, count = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace

void* MakeNcclBackend(void* store, int rank, int world_size, int64_t timeout_ms, int num_streams,
                      char* reason, size_t reason_bytes) {
  if (const std::string why = WhyNotNccl(NCCL_VERSION_CODE, LoadedNccl()); !why.empty()) {
    std::snprintf(reason, reason_bytes, "%s", why.c_str());
    return nullptr;
  }
  try {
    auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = std::chrono::milliseconds(timeout_ms);
    options->config.maxCTAs = MostBlocks(Multiprocessors(), num_streams);
    auto shared =
        c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(static_cast<c10d::Store*>(store));
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(shared), rank, world_size,
                                                       std::move(options))
        .release();
  } catch (const std::exception& error) {
    std::snprintf(reason, reason_bytes, "%s", error.what());
    return nullptr;
  }
}

}  // namespace trainctl::kernels
