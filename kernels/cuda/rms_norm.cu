// rms_norm, add_rms_norm and the gradient of either. One block a row; what a thread read for the sum over the
// row it keeps in registers for the result, kKept units of each input; what is beyond (rows of more than
// 16384 bf16 or 8192 fp32 elements) is read again.

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int kKept = 4;
constexpr int kNormThreads = 512;

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
__global__ void __launch_bounds__(kNormThreads)
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

template <typename T, bool kAligned>
__device__ inline float UnitDot(const Unit<T>& dy_unit, const Unit<T>& x_unit, const T* w, int64_t count) {
  float dy[kWidth<T>], x[kWidth<T>], weights[kWidth<T>];
  ToFloats(dy_unit, dy);
  ToFloats(x_unit, x);
  LoadFloats<kAligned>(w, count, weights);
  float dot = 0;
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) dot += dy[i] * x[i] * weights[i];
  return dot;
}

template <typename T, bool kAligned>
__device__ inline void StoreGradient(T* dx, const Unit<T>& dy_unit, const Unit<T>& x_unit, const T* w,
                                     float r, float c, bool accumulate, int64_t count) {
  float dy[kWidth<T>], x[kWidth<T>], weights[kWidth<T>], sum[kWidth<T>] = {};
  ToFloats(dy_unit, dy);
  ToFloats(x_unit, x);
  LoadFloats<kAligned>(w, count, weights);
  if (accumulate) LoadFloats<kAligned>(dx, count, sum);
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) sum[i] += r * (dy[i] * weights[i] - x[i] * c);
  StoreFloats<kAligned>(dx, count, sum);
}

// dx may be dy: a thread writes where it alone has read before. (So no __restrict__ on these two.)
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kNormThreads)
    RmsNormBackwardKernel(T* dx, const T* dy, const T* __restrict__ x, const float* __restrict__ rstd,
                          const T* __restrict__ w, bool accumulate, int64_t n, int64_t h) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  const int64_t begin = int64_t{threadIdx.x} * W;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const T* dy_row = dy + row * h;
    const T* x_row = x + row * h;
    T* dx_row = dx + row * h;
    Unit<T> dy_kept[kKept], x_kept[kKept];
    float dot = 0;
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) {
        dy_kept[k] = LoadUnit<kAligned>(dy_row + at, Left<kAligned, T>(h, at));
        x_kept[k] = LoadUnit<kAligned>(x_row + at, Left<kAligned, T>(h, at));
      }
    }
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) dot += UnitDot<T, kAligned>(dy_kept[k], x_kept[k], w + at, Left<kAligned, T>(h, at));
    }
    for (int64_t at = begin + kKept * step; at < h; at += step) {
      dot += UnitDot<T, kAligned>(LoadUnit<kAligned>(dy_row + at, Left<kAligned, T>(h, at)),
                                  LoadUnit<kAligned>(x_row + at, Left<kAligned, T>(h, at)), w + at,
                                  Left<kAligned, T>(h, at));
    }
    const float r = rstd[row];
    const float c = BlockSum(dot) * r * r / static_cast<float>(h);
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) {
        StoreGradient<T, kAligned>(dx_row + at, dy_kept[k], x_kept[k], w + at, r, c, accumulate,
                                   Left<kAligned, T>(h, at));
      }
    }
    for (int64_t at = begin + kKept * step; at < h; at += step) {
      const Unit<T> dy_unit = LoadUnit<kAligned>(dy_row + at, Left<kAligned, T>(h, at));
      StoreGradient<T, kAligned>(dx_row + at, dy_unit,
                                 LoadUnit<kAligned>(x_row + at, Left<kAligned, T>(h, at)), w + at, r, c,
                                 accumulate, Left<kAligned, T>(h, at));
    }
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

template <typename T>
void RmsNormBackward(void* dx, void* dw, const void* dy, const void* x, const void* rstd, const void* w,
                     bool accumulate, int64_t n, int64_t h) {
  if (n <= 0 || h <= 0) return;
  // First, while dy is still there.
  AddColumnSums<T, true>("rms_norm_backward", static_cast<float*>(dw), static_cast<const T*>(dy),
                         static_cast<const T*>(x), static_cast<const float*>(rstd), n, h);
  const bool aligned = AreAligned(dx, dy, x, w) && h % kWidth<T> == 0;
  Launch("rms_norm_backward", aligned ? RmsNormBackwardKernel<T, true> : RmsNormBackwardKernel<T, false>,
         NormShape<T>(n, h), static_cast<T*>(dx), static_cast<const T*>(dy), static_cast<const T*>(x),
         static_cast<const float*>(rstd), static_cast<const T*>(w), accumulate, n, h);
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
