// The table, and what launch.cuh needs of CUDA's runtime.

#include <cstdio>
#include <mutex>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels {
namespace cuda {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{8} << 20;

struct Device {
  int num_multiprocessors = 1;
  void* workspace = nullptr;
  // Another stream than the last user's waits for what that one has queued so far.
  std::mutex workspace_mutex;
  cudaStream_t workspace_stream = nullptr;
  bool workspace_used = false;
  cudaEvent_t workspace_free = nullptr;

  std::mutex error_mutex;
  const char* failed = nullptr;
  cudaError_t error = cudaSuccess;
};

Device& TheDevice() {
  static Device* device = new Device;  // no destructor: CUDA's own may have run before it
  return *device;
}

int Report(const char* what, cudaError_t error, char* reason, size_t reason_bytes) {
  if (reason != nullptr && reason_bytes > 0) {
    std::snprintf(reason, reason_bytes, "%s: %s (%s)", what, cudaGetErrorString(error),
                  cudaGetErrorName(error));
  }
  return 1;
}

}  // namespace

void KeepError(const char* name, cudaError_t error) {
  (void)cudaGetLastError();  // ours now; LibTorch's next call should not find it
  Device& device = TheDevice();
  const std::lock_guard<std::mutex> lock(device.error_mutex);
  if (device.error == cudaSuccess) {
    device.failed = name;
    device.error = error;
  }
}

int NumMultiprocessors() { return TheDevice().num_multiprocessors; }

Workspace::Workspace() {
  Device& device = TheDevice();
  device.workspace_mutex.lock();
  data_ = device.workspace;
  bytes_ = kWorkspaceBytes;
  const cudaStream_t stream = CurrentCudaStream();
  if (device.workspace_used && device.workspace_stream != stream) {
    cudaError_t error = cudaEventRecord(device.workspace_free, device.workspace_stream);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream, device.workspace_free, 0);
    if (error != cudaSuccess) KeepError("the change of the workspace's stream", error);
  }
  device.workspace_stream = stream;
  device.workspace_used = true;
}

Workspace::~Workspace() { TheDevice().workspace_mutex.unlock(); }

}  // namespace cuda

const Kernels* CudaKernels() {
  static const Kernels table = cuda::MakeTable();
  return &table;
}

int InitCudaKernels(char* reason, size_t reason_bytes) {
  cuda::Device& device = cuda::TheDevice();
  int ordinal = 0, multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&ordinal);
  if (error != cudaSuccess) return cuda::Report("cudaGetDevice", error, reason, reason_bytes);
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, ordinal);
  if (error != cudaSuccess) return cuda::Report("cudaDeviceGetAttribute", error, reason, reason_bytes);
  const std::lock_guard<std::mutex> lock(device.workspace_mutex);
  if (device.workspace == nullptr) {
    error = cudaEventCreateWithFlags(&device.workspace_free, cudaEventDisableTiming);
    if (error != cudaSuccess) return cuda::Report("cudaEventCreate", error, reason, reason_bytes);
    error = cudaMalloc(&device.workspace, cuda::kWorkspaceBytes);
    if (error != cudaSuccess) {
      device.workspace = nullptr;
      return cuda::Report("the kernels' workspace of 8 MiB", error, reason, reason_bytes);
    }
  }
  device.num_multiprocessors = multiprocessors;
  return 0;
}

int TakeCudaError(char* reason, size_t reason_bytes) {
  cuda::Device& device = cuda::TheDevice();
  {
    const std::lock_guard<std::mutex> lock(device.error_mutex);
    if (device.error != cudaSuccess) {
      const cudaError_t error = device.error;
      device.error = cudaSuccess;
      char what[128];
      std::snprintf(what, sizeof(what), "launch of %s", device.failed);
      return cuda::Report(what, error, reason, reason_bytes);
    }
  }
  // A kernel that ran into an error has left it with the device; asking the stream does not wait.
  const cudaError_t error = cudaStreamQuery(CurrentCudaStream());
  if (error == cudaSuccess) return 0;
  (void)cudaGetLastError();
  if (error == cudaErrorNotReady) return 0;
  return cuda::Report("a kernel on the device", error, reason, reason_bytes);
}

}  // namespace trainctl::kernels
