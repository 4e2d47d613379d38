// libtrainctl_cuda.so: CUDA behind the table of kernels/device_api.h. With nccl_backend.cc and graph.cc the
// one place that includes LibTorch's CUDA headers.

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/env.h>
#include <cuda_runtime_api.h>
#include <torch/headeronly/version.h>

#include <cstdio>
#include <exception>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/nccl_backend.h"
#include "kernels/device_api.h"

#define TRAINCTL_TEXT_OF(x) #x
#define TRAINCTL_TEXT(x) TRAINCTL_TEXT_OF(x)

namespace trainctl::kernels {

CUstream_st* CurrentCudaStream() { return c10::cuda::getCurrentCUDAStream().stream(); }

namespace {

// The oldest that the kernels are compiled for.
constexpr int kLeastCapability = 80;

int Refuse(char* reason, size_t reason_bytes, const char* what) {
  std::snprintf(reason, reason_bytes, "%s", what);
  return 1;
}

int CountDevices(int* count, char* reason, size_t reason_bytes) {
  const cudaError_t error = cudaGetDeviceCount(count);
  if (error == cudaSuccess) return 0;
  (void)cudaGetLastError();
  return Refuse(reason, reason_bytes, cudaGetErrorString(error));
}

// What the user has set stays. (LibTorch's threads read the environment under the lock that set_env takes.)
void SetDefault(const char* name, const char* value) {
  c10::utils::set_env(name, value, /*overwrite=*/false);
}

// cuBLAS gives the same bits with a workspace of its own for each stream; sums of bf16 products stay in fp32.
void SetUpProducts() {
  SetDefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
}

// If there are fewer queues than streams, a stream that waits for another rank blocks the streams that share
// its queue. A step uses up to seven streams for exchanges, and LibTorch adds one per group. CUDA reads the
// variable in its first call.
void SetUpQueues() { SetDefault("CUDA_DEVICE_MAX_CONNECTIONS", "32"); }

int Open(int ordinal, DeviceProperties* properties, char* reason, size_t reason_bytes) {
  cudaDeviceProp device;
  if (const cudaError_t error = cudaGetDeviceProperties(&device, ordinal); error != cudaSuccess)
    return Refuse(reason, reason_bytes, cudaGetErrorString(error));
  if (device.major * 10 + device.minor < kLeastCapability) {
    std::snprintf(reason, reason_bytes, "%s has compute capability %d.%d; at least 8.0 is needed",
                  device.name, device.major, device.minor);
    return 1;
  }
  std::snprintf(properties->name, sizeof(properties->name), "%s", device.name);
  properties->memory_bytes = static_cast<int64_t>(device.totalGlobalMem);
  properties->capability_major = device.major;
  properties->capability_minor = device.minor;
  try {
    SetUpProducts();
    at::globalContext().lazyInitDevice(at::kCUDA);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(ordinal));
  } catch (const std::exception& error) {
    return Refuse(reason, reason_bytes, error.what());
  }
  return InitCudaKernels(reason, reason_bytes);
}

}  // namespace
}  // namespace trainctl::kernels

extern "C" __attribute__((visibility("default"))) const trainctl::kernels::DeviceApi* trainctl_device_api() {
  using namespace trainctl::kernels;
  SetUpQueues();
  static const DeviceApi api = {
      .abi = kDeviceAbi,
      .table_bytes = sizeof(DeviceApi),
      .name = "cuda",
      .torch_version = TORCH_VERSION,
      .toolkit = "CUDA " TRAINCTL_TEXT(TRAINCTL_CUDA_VERSION),
      .architectures = "sm_80 sm_90a",
      .torch_device_type = static_cast<int32_t>(c10::DeviceType::CUDA),
      .count_devices = CountDevices,
      .open = Open,
      .kernels = CudaKernels(),
      .take_error = TakeCudaError,
      .make_backend = MakeNcclBackend,
      .begin_graph = BeginCudaGraph,
      .end_graph = EndCudaGraph,
      .launch_graph = LaunchCudaGraph,
      .free_graph = FreeCudaGraph,
  };
  return &api;
}
