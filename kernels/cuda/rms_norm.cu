// rms_norm, add_rms_norm and the gradient of either. A block has a row at a time; what a thread read for the
// sum over the row it keeps in registers for the result, kKept units of each input; what is beyond (rows of
// more than 16384 bf16 or 8192 fp32 elements) is read again.
//
// The gradient is one pass: a block has a slice of rows, and its threads keep the sums of the weight's
// gradient over the slice, each those of its own columns, kSummed units; of wider rows (8192 bf16 or 4096
// fp32 elements) the workspace keeps the rest. A second kernel adds the slices. Slices depend on rows and
// columns alone, and so do the bits.

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int kKept = 4;
constexpr int kNormThreads = 512;
// Blocks that ptxas leaves registers for. Left to itself it aims at three per multiprocessor, and spills.
constexpr int kNormBlocks = 1;

constexpr int kSummed = 2;
// Narrow rows take few threads each, so that more slices are needed to keep the device busy.
constexpr int64_t kNarrowNorm = 1024;
constexpr int64_t kMostNormSlices = 512;
constexpr int64_t kMostNarrowNormSlices = 1024;
constexpr int64_t kLeastRowsPerNormSlice = 8;

// ---- kernels ------------------------------------------------------------------------------------

template <typename T>
__device__ inline float UnitSquares(const Unit<T>& unit) {
  float values[kWidth<T>];
  ToFloats(unit, values);
  float sum = 0;
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) sum += values[i] * values[i];
  return sum;
}

template <typename T, bool kAligned>
__device__ inline void StoreScaled(T* y, const Unit<T>& unit, const T* w, float r, int64_t count) {
  float values[kWidth<T>], weights[kWidth<T>];
  ToFloats(unit, values);
  LoadFloats<kAligned>(w, count, weights);
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) values[i] = values[i] * r * weights[i];
  StoreFloats<kAligned>(y, count, values);
}

// A unit of the row, to which that of `added` is added first where there is one.
template <typename T, bool kAdds, bool kAligned>
__device__ inline Unit<T> LoadSummed(T* row, const T* added, int64_t count) {
  Unit<T> unit = LoadUnit<kAligned>(row, count);
  if (kAdds) {
    float values[kWidth<T>], summands[kWidth<T>];
    ToFloats(unit, values);
    LoadFloats<kAligned>(added, count, summands);
    TRAINCTL_UNROLL
    for (int i = 0; i < kWidth<T>; ++i) values[i] += summands[i];
    unit = ToUnit(values);
    StoreUnit<kAligned>(row, unit, count);
  }
  return unit;
}

// Without kAdds x is only read, and `added` is not.
template <typename T, bool kAdds, bool kAligned>
__global__ void __launch_bounds__(kNormThreads, kNormBlocks)
    RmsNormKernel(T* __restrict__ y, float* __restrict__ rstd, T* __restrict__ x, const T* __restrict__ added,
                  const T* __restrict__ w, float eps, int64_t n, int64_t h) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  const int64_t begin = int64_t{threadIdx.x} * W;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    T* from = x + row * h;
    const T* added_row = added + row * h;
    T* to = y + row * h;
    Unit<T> kept[kKept];
    float sum = 0;
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      const int64_t at = begin + k * step;
      if (at < h)
        kept[k] = LoadSummed<T, kAdds, kAligned>(from + at, added_row + at, Left<kAligned, T>(h, at));
    }
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      if (begin + k * step < h) sum += UnitSquares<T>(kept[k]);
    }
    for (int64_t at = begin + kKept * step; at < h; at += step) {
      sum +=
          UnitSquares<T>(LoadSummed<T, kAdds, kAligned>(from + at, added_row + at, Left<kAligned, T>(h, at)));
    }
    const float r = 1.0f / sqrtf(BlockSum(sum) / static_cast<float>(h) + eps);
    if (threadIdx.x == 0) rstd[row] = r;
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) StoreScaled<T, kAligned>(to + at, kept[k], w + at, r, Left<kAligned, T>(h, at));
    }
    for (int64_t at = begin + kKept * step; at < h; at += step) {
      StoreScaled<T, kAligned>(to + at, LoadUnit<kAligned>(from + at, Left<kAligned, T>(h, at)), w + at, r,
                               Left<kAligned, T>(h, at));
    }
  }
}

template <typename T>
__device__ inline float UnitDot(const Unit<T>& dy_unit, const Unit<T>& x_unit, const Unit<T>& w_unit) {
  float dy[kWidth<T>], x[kWidth<T>], weights[kWidth<T>];
  ToFloats(dy_unit, dy);
  ToFloats(x_unit, x);
  ToFloats(w_unit, weights);
  float dot = 0;
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) dot += dy[i] * x[i] * weights[i];
  return dot;
}

template <typename T>
__device__ inline void AddWeightGradient(const Unit<T>& dy_unit, const Unit<T>& x_unit, float r,
                                         float (&sums)[kWidth<T>]) {
  float dy[kWidth<T>], x[kWidth<T>];
  ToFloats(dy_unit, dy);
  ToFloats(x_unit, x);
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) sums[i] += dy[i] * x[i] * r;
}

// sum + r * (dy * w - x * c)
template <typename T>
__device__ inline Unit<T> InputGradient(const Unit<T>& sum_unit, const Unit<T>& dy_unit,
                                        const Unit<T>& x_unit, const Unit<T>& w_unit, float r, float c) {
  float sum[kWidth<T>], dy[kWidth<T>], x[kWidth<T>], weights[kWidth<T>];
  ToFloats(sum_unit, sum);
  ToFloats(dy_unit, dy);
  ToFloats(x_unit, x);
  ToFloats(w_unit, weights);
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) sum[i] += r * (dy[i] * weights[i] - x[i] * c);
  return ToUnit(sum);
}

// What a thread keeps of a row. dx may be dy: a thread writes where it alone has read before. (So no
// __restrict__ on these two.)
template <typename T>
struct NormRow {
  Unit<T> dy[kSummed], x[kSummed], sum[kSummed];
};

template <typename T, bool kAligned>
__device__ inline void LoadRow(NormRow<T>& to, const T* dx, const T* dy, const T* x, bool accumulate,
                               int64_t begin, int64_t step, int64_t h) {
  TRAINCTL_UNROLL
  for (int k = 0; k < kSummed; ++k) {
    const int64_t at = begin + k * step;
    to.sum[k] = {{0, 0, 0, 0}};
    if (at < h) {
      to.dy[k] = LoadUnit<kAligned>(dy + at, Left<kAligned, T>(h, at));
      to.x[k] = LoadUnit<kAligned>(x + at, Left<kAligned, T>(h, at));
      if (accumulate) to.sum[k] = LoadUnit<kAligned>(dx + at, Left<kAligned, T>(h, at));
    }
  }
}

// The sums of a slice into sums [slices, h], which is written in full.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kNormThreads)
    RmsNormBackwardKernel(T* dx, float* __restrict__ sums, const T* dy, const T* __restrict__ x,
                          const float* __restrict__ rstd, const T* __restrict__ w, bool accumulate, int64_t n,
                          int64_t h, int64_t rows_per_slice) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  const int64_t begin = int64_t{threadIdx.x} * W;
  const int64_t first = int64_t{blockIdx.x} * rows_per_slice;
  const int64_t end = first + rows_per_slice < n ? first + rows_per_slice : n;
  float* const slice_sums = sums + int64_t{blockIdx.x} * h;
  float kept_sums[kSummed][W] = {};
  NormRow<T> next;
  LoadRow<T, kAligned>(next, dx + first * h, dy + first * h, x + first * h, accumulate, begin, step, h);
  TRAINCTL_NO_UNROLL
  for (int64_t row = first; row < end; ++row) {
    const T* const dy_row = dy + row * h;
    const T* const x_row = x + row * h;
    T* const dx_row = dx + row * h;
    const NormRow<T> kept = next;
    // On its way while the threads wait for each other.
    if (row + 1 < end) {
      LoadRow<T, kAligned>(next, dx_row + h, dy_row + h, x_row + h, accumulate, begin, step, h);
    }
    float dot = 0;
    TRAINCTL_UNROLL
    for (int k = 0; k < kSummed; ++k) {
      const int64_t at = begin + k * step;
      if (at < h)
        dot += UnitDot<T>(kept.dy[k], kept.x[k], LoadUnit<kAligned>(w + at, Left<kAligned, T>(h, at)));
    }
    TRAINCTL_NO_UNROLL
    for (int64_t at = begin + kSummed * step; at < h; at += step) {
      const int64_t count = Left<kAligned, T>(h, at);
      dot += UnitDot<T>(LoadUnit<kAligned>(dy_row + at, count), LoadUnit<kAligned>(x_row + at, count),
                        LoadUnit<kAligned>(w + at, count));
    }
    const float r = rstd[row];
    const float c = BlockSum(dot) * r * r / static_cast<float>(h);
    TRAINCTL_UNROLL
    for (int k = 0; k < kSummed; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) {
        const int64_t count = Left<kAligned, T>(h, at);
        AddWeightGradient<T>(kept.dy[k], kept.x[k], r, kept_sums[k]);
        StoreUnit<kAligned>(
            dx_row + at,
            InputGradient<T>(kept.sum[k], kept.dy[k], kept.x[k], LoadUnit<kAligned>(w + at, count), r, c),
            count);
      }
    }
    TRAINCTL_NO_UNROLL
    for (int64_t at = begin + kSummed * step; at < h; at += step) {
      const int64_t count = Left<kAligned, T>(h, at);
      const Unit<T> dy_unit = LoadUnit<kAligned>(dy_row + at, count);
      const Unit<T> x_unit = LoadUnit<kAligned>(x_row + at, count);
      Unit<T> sum = {{0, 0, 0, 0}};
      if (accumulate) sum = LoadUnit<kAligned>(dx_row + at, count);
      float gradient[W] = {};
      AddWeightGradient<T>(dy_unit, x_unit, r, gradient);
      if (row != first) {
        float sum_so_far[W];
        LoadFloats<kAligned>(slice_sums + at, count, sum_so_far);
        TRAINCTL_UNROLL
        for (int i = 0; i < W; ++i) gradient[i] = sum_so_far[i] + gradient[i];
      }
      StoreFloats<kAligned>(slice_sums + at, count, gradient);
      StoreUnit<kAligned>(dx_row + at,
                          InputGradient<T>(sum, dy_unit, x_unit, LoadUnit<kAligned>(w + at, count), r, c),
                          count);
    }
  }
  TRAINCTL_UNROLL
  for (int k = 0; k < kSummed; ++k) {
    const int64_t at = begin + k * step;
    if (at < h) StoreFloats<kAligned>(slice_sums + at, Left<kAligned, T>(h, at), kept_sums[k]);
  }
}

// ---- launchers ----------------------------------------------------------------------------------

template <typename T>
Shape NormShape(int64_t n, int64_t h) {
  return RowShape(n, CeilDiv(h, kWidth<T> * kKept), kNormThreads);
}

template <typename T>
void RmsNorm(void* y, void* rstd, const void* x, const void* w, float eps, int64_t n, int64_t h) {
  if (n <= 0 || h <= 0) return;
  const bool aligned = AreAligned(y, x, w) && h % kWidth<T> == 0;
  Launch("rms_norm", aligned ? RmsNormKernel<T, false, true> : RmsNormKernel<T, false, false>,
         NormShape<T>(n, h), static_cast<T*>(y), static_cast<float*>(rstd),
         const_cast<T*>(static_cast<const T*>(x)), static_cast<const T*>(x), static_cast<const T*>(w), eps, n,
         h);
}

template <typename T>
void AddRmsNorm(void* sum, void* y, void* rstd, const void* x, const void* w, float eps, int64_t n,
                int64_t h) {
  if (n <= 0 || h <= 0) return;
  const bool aligned = AreAligned(sum, y, x, w) && h % kWidth<T> == 0;
  Launch("add_rms_norm", aligned ? RmsNormKernel<T, true, true> : RmsNormKernel<T, true, false>,
         NormShape<T>(n, h), static_cast<T*>(y), static_cast<float*>(rstd), static_cast<T*>(sum),
         static_cast<const T*>(x), static_cast<const T*>(w), eps, n, h);
}

// As many slices as keep the device busy, and as have their sums in the workspace.
int64_t RowsPerNormSlice(int64_t n, int64_t h, int64_t workspace_bytes) {
  const int64_t fitting = workspace_bytes / static_cast<int64_t>(sizeof(float)) / h;
  const int64_t slices = Clamp(fitting, 1, h <= kNarrowNorm ? kMostNarrowNormSlices : kMostNormSlices);
  return CeilDiv(n, slices) > kLeastRowsPerNormSlice ? CeilDiv(n, slices) : kLeastRowsPerNormSlice;
}

template <typename T>
void RmsNormBackward(void* dx, void* dw, const void* dy, const void* x, const void* rstd, const void* w,
                     bool accumulate, int64_t n, int64_t h) {
  if (n <= 0 || h <= 0) return;
  const bool aligned = AreAligned(dx, dy, x, w) && h % kWidth<T> == 0;
  const int threads = ThreadsFor(CeilDiv(h, kWidth<T> * kSummed), kNormThreads);
  const Workspace workspace;
  float* const sums = static_cast<float*>(workspace.data());
  const int64_t rows_per_slice = RowsPerNormSlice(n, h, workspace.bytes());
  const int64_t slices = CeilDiv(n, rows_per_slice);
  Launch("rms_norm_backward", aligned ? RmsNormBackwardKernel<T, true> : RmsNormBackwardKernel<T, false>,
         {.blocks_x = slices, .threads = threads}, static_cast<T*>(dx), sums, static_cast<const T*>(dy),
         static_cast<const T*>(x), static_cast<const float*>(rstd), static_cast<const T*>(w), accumulate, n,
         h, rows_per_slice);
  AddSlices("rms_norm_backward", static_cast<float*>(dw), sums, h, slices);
}

template <typename T>
void FillRmsNormOf(TypedKernels* table) {
  table->rms_norm = RmsNorm<T>;
  table->add_rms_norm = AddRmsNorm<T>;
  table->rms_norm_backward = RmsNormBackward<T>;
}

}  // namespace

void FillRmsNorm(Kernels* table) {
  FillRmsNormOf<float>(&table->f32);
  FillRmsNormOf<BF16>(&table->bf16);
}

}  // namespace trainctl::kernels::cuda
