// Sums over rows, out[column] += ..., for the gradient of a bias. Rows are cut into slices that depend only
// on their number. A block sums 32 units of columns (units.cuh) over one slice. Each of its warps sums every
// eighth row; then the sums of the warps are added in order. A second kernel adds the slices in the same way;
// the gradient of a norm's weight uses it too. The order of all sums is fixed, and there are no atomics.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace trainctl::kernels::cuda {

inline constexpr int kColumnWarps = 8;
inline constexpr int kColumnThreads = kColumnWarps * kWarp;
inline constexpr int64_t kMostSlices = 64;
inline constexpr int64_t kLeastRowsPerSlice = 256;

// Sums columns [first, first + cols) of rows of `stride` elements into `sums` [slices, cols].
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kColumnThreads, 4)
    SliceSumsKernel(float* __restrict__ sums, const T* __restrict__ dy, int64_t n, int64_t stride,
                    int64_t first, int64_t cols, int64_t rows_per_slice) {
  constexpr int W = kWidth<T>;
  constexpr int kColumns = kWarp * W;
  // Element i of lane l is at i * 32 + l, so that no two lanes of a warp use the same bank.
  TRAINCTL_SHARED(float, warp_sums, kColumnWarps* kColumns);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t block_column = int64_t{blockIdx.x} * kColumns;
  const int64_t column = block_column + lane * W;
  const int64_t begin = int64_t{blockIdx.y} * rows_per_slice;
  const int64_t end = begin + rows_per_slice < n ? begin + rows_per_slice : n;
  float sum[W] = {};
  int64_t at = (begin + warp) * stride + first + column;
  if (column < cols) {
    TRAINCTL_UNROLL_BY_4
    for (int64_t row = begin + warp; row < end; row += kColumnWarps, at += kColumnWarps * stride) {
      float values[W];
      LoadFloats<kAligned>(dy + at, Left<kAligned, T>(cols, column), values);
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) sum[i] += values[i];
    }
  }
  TRAINCTL_UNROLL
  for (int i = 0; i < W; ++i) warp_sums[warp * kColumns + i * kWarp + lane] = sum[i];
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < kColumns && block_column + c < cols; c += kColumnThreads) {
    float total = 0;
    for (int w = 0; w < kColumnWarps; ++w) total += warp_sums[w * kColumns + c % W * kWarp + c / W];
    sums[int64_t{blockIdx.y} * cols + block_column + c] = total;
  }
}

// Adds all slices, 32 columns per block: each warp sums every eighth slice, then the sums of the warps are
// added in order.
template <typename Unused>
__global__ void __launch_bounds__(kColumnThreads)
    AddSlicesKernel(float* __restrict__ out, const float* __restrict__ sums, int64_t cols, int64_t slices) {
  TRAINCTL_SHARED(float, warp_sums, kColumnThreads);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = int64_t{blockIdx.x} * kWarp + lane;
  float sum = 0;
  if (column < cols) {
    TRAINCTL_UNROLL_BY_4
    for (int64_t slice = warp; slice < slices; slice += kColumnWarps) sum += sums[slice * cols + column];
  }
  warp_sums[threadIdx.x] = sum;
  __syncthreads();
  if (warp > 0 || column >= cols) return;
  float total = 0;
  for (int w = 0; w < kColumnWarps; ++w) total += warp_sums[w * kWarp + lane];
  out[column] += total;
}

// Adds `sums` [slices, cols] to `out` [cols]. `name` is the operator's name in error messages.
inline void AddSlices(const char* name, float* out, const float* sums, int64_t cols, int64_t slices) {
  Launch(name, AddSlicesKernel<void>, {.blocks_x = CeilDiv(cols, kWarp), .threads = kColumnThreads}, out,
         sums, cols, slices);
}

// Adds the sum of the rows of dy [n, cols] to `out` [cols]. Wide rows take several launches, because the
// workspace is limited.
template <typename T>
void AddColumnSums(const char* name, float* out, const T* dy, int64_t n, int64_t cols) {
  constexpr int64_t kColumns = kWarp * kWidth<T>;
  const int64_t rows_per_slice =
      CeilDiv(n, kMostSlices) > kLeastRowsPerSlice ? CeilDiv(n, kMostSlices) : kLeastRowsPerSlice;
  const int64_t slices = CeilDiv(n, rows_per_slice);
  const bool aligned = AreAligned(dy) && cols % kWidth<T> == 0;
  const Workspace workspace;
  float* sums = static_cast<float*>(workspace.data());
  const int64_t fitting =
      workspace.bytes() / static_cast<int64_t>(sizeof(float)) / slices / kColumns * kColumns;
  for (int64_t first = 0; first < cols; first += fitting) {
    const int64_t piece = cols - first < fitting ? cols - first : fitting;
    Launch(name, aligned ? SliceSumsKernel<T, true> : SliceSumsKernel<T, false>,
           {.blocks_x = CeilDiv(piece, kColumns), .blocks_y = slices, .threads = kColumnThreads}, sums, dy, n,
           cols, first, piece, rows_per_slice);
    AddSlices(name, out + first, sums, piece, slices);
  }
}

}  // namespace trainctl::kernels::cuda
