// Launch() for CUDA's runtime. launch.cuh includes this file.
#pragma once

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.cuh"

namespace trainctl::kernels::cuda {

// Keeps the first error since the last TakeCudaError. `name` is the operator and must be a string constant.
void KeepError(const char* name, cudaError_t error);

template <typename... Parameters, typename... Arguments>
void Launch(const char* name, void (*kernel)(Parameters...), const Shape& shape, Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.stream = CurrentCudaStream();
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
  if (error != cudaSuccess) KeepError(name, error);
}

}  // namespace trainctl::kernels::cuda
