// Sums and maxima over the threads of a block, in a fixed order: first within each warp, by halves, then over
// the warps from first to last. Every thread of the block must call them, and gets the result. The block must
// be one-dimensional and consist of whole warps.
#pragma once

#include "kernels/cuda/portable.cuh"

namespace trainctl::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kMaxWarps = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

template <typename V>
__device__ inline V BlockSum(V value) {
  TRAINCTL_SHARED(V, warp_sums, kMaxWarps);
  TRAINCTL_UNROLL
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  const int num_warps = static_cast<int>(blockDim.x) / kWarp;
  __syncthreads();  // the readers of the previous call are done
  if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  V sum = warp_sums[0];
  for (int warp = 1; warp < num_warps; ++warp) sum += warp_sums[warp];
  return sum;
}

// Ignores NaN, like fmaxf.
__device__ inline float BlockMax(float value) {
  TRAINCTL_SHARED(float, warp_maxima, kMaxWarps);
  TRAINCTL_UNROLL
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  const int num_warps = static_cast<int>(blockDim.x) / kWarp;
  __syncthreads();
  if (threadIdx.x % kWarp == 0) warp_maxima[threadIdx.x / kWarp] = value;
  __syncthreads();
  float maximum = warp_maxima[0];
  for (int warp = 1; warp < num_warps; ++warp) maximum = fmaxf(maximum, warp_maxima[warp]);
  return maximum;
}

}  // namespace trainctl::kernels::cuda
