// rms_norm, add_rms_norm, layer_norm and their gradients. A block processes one row at a time. Each thread
// keeps up to kKept units of each input in registers between the sum over the row and the result. It reads
// the rest of longer rows (more than 16384 bf16 or 8192 fp32 elements) twice.
//
// The gradient takes one pass. A block processes a slice of rows, and each thread keeps the sums of the
// weight's gradient over the slice for up to kSummed units of columns. For wider rows (more than 8192 bf16 or
// 4096 fp32 elements), the workspace holds the other sums. A second kernel adds the slices. Slices depend
// only on the numbers of rows and columns, and so do the bits. The gradient of layer_norm subtracts the mean
// from the input and needs one more sum over the row; a separate pass over dy computes the gradient of its
// bias.
//
// Heads are much shorter than rows, so a group of lanes processes one head at a time, and a block several
// heads. A block sums the weight's gradient over all heads of its slice of rows. The kernels for rows also
// process heads of more than 512 bf16 or 256 fp32 elements, such as a norm over all queries of a token.

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int kKept = 4;
constexpr int kNormThreads = 512;
// Minimum number of blocks per multiprocessor for ptxas. By default it aims at three, and spills registers.
constexpr int kNormBlocks = 1;

constexpr int kSummed = 2;
// Narrow rows need few threads each, so more slices are needed to keep the device busy.
constexpr int64_t kNarrowNorm = 1024;
constexpr int64_t kMostNormSlices = 512;
constexpr int64_t kMostNarrowNormSlices = 1024;
constexpr int64_t kLeastRowsPerNormSlice = 8;

// ---- kernels ------------------------------------------------------------------------------------

// The sum of term(x) over the first `count` elements of a unit. Elements after the end of a row are zeros.
template <typename T, typename Term>
__device__ inline float SumOfUnit(const Unit<T>& unit, int64_t count, const Term& term) {
  float values[kWidth<T>];
  ToFloats(unit, values);
  float sum = 0;
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) {
    if (i < count) sum += term(values[i]);
  }
  return sum;
}

template <typename T>
__device__ inline float SumOfSquares(const Unit<T>& unit) {
  return SumOfUnit(unit, kWidth<T>, [](float x) { return x * x; });
}

// Loads the factors of the elements from `at` on.
template <bool kAligned, typename T>
__device__ inline void LoadGain(const T* w, Gain gain, int64_t at, int64_t count,
                                float (&values)[kWidth<T>]) {
  if (gain == Gain::kNone) {
    TRAINCTL_UNROLL
    for (int i = 0; i < kWidth<T>; ++i) values[i] = 1;
    return;
  }
  LoadFloats<kAligned>(w + at, count, values);
  if (gain == Gain::kOnePlusWeight) {
    TRAINCTL_UNROLL
    for (int i = 0; i < kWidth<T>; ++i) values[i] += 1;
  }
}

template <typename T, bool kAligned>
__device__ inline void StoreScaled(T* y, const Unit<T>& unit, const float (&weights)[kWidth<T>], float r,
                                   int64_t count) {
  float values[kWidth<T>];
  ToFloats(unit, values);
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) values[i] = values[i] * r * weights[i];
  StoreFloats<kAligned>(y, count, values);
}

// Loads a unit of the row. If kAdds, first adds the unit of `added` and writes the sum to the row.
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

// Rows of x and `added` are x_stride elements apart. Without kAdds, x is not written and `added` is not read.
template <typename T, bool kAdds, bool kAligned>
__global__ void __launch_bounds__(kNormThreads, kNormBlocks)
    RmsNormKernel(T* __restrict__ y, float* __restrict__ rstd, T* __restrict__ x, const T* __restrict__ added,
                  const T* __restrict__ w, Gain gain, float eps, int64_t n, int64_t h, int64_t y_stride,
                  int64_t x_stride, int64_t rstd_stride) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  const int64_t begin = int64_t{threadIdx.x} * W;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    T* from = x + row * x_stride;
    const T* added_row = added + row * x_stride;
    T* to = y + row * y_stride;
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
      if (begin + k * step < h) sum += SumOfSquares(kept[k]);
    }
    for (int64_t at = begin + kKept * step; at < h; at += step) {
      sum +=
          SumOfSquares(LoadSummed<T, kAdds, kAligned>(from + at, added_row + at, Left<kAligned, T>(h, at)));
    }
    const float r = 1.0f / sqrtf(BlockSum(sum) / static_cast<float>(h) + eps);
    if (threadIdx.x == 0) rstd[row * rstd_stride] = r;
    float weights[W];
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) {
        LoadGain<kAligned>(w, gain, at, Left<kAligned, T>(h, at), weights);
        StoreScaled<T, kAligned>(to + at, kept[k], weights, r, Left<kAligned, T>(h, at));
      }
    }
    for (int64_t at = begin + kKept * step; at < h; at += step) {
      LoadGain<kAligned>(w, gain, at, Left<kAligned, T>(h, at), weights);
      StoreScaled<T, kAligned>(to + at, LoadUnit<kAligned>(from + at, Left<kAligned, T>(h, at)), weights, r,
                               Left<kAligned, T>(h, at));
    }
  }
}

// Writes (x - mean) * r * gain + bias to the row y, for the elements from `at` on.
template <typename T, bool kAligned>
__device__ inline void StoreCentered(T* y, const Unit<T>& unit, const T* w, Gain gain, const T* bias,
                                     float mean, float r, int64_t at, int64_t count) {
  float values[kWidth<T>], weights[kWidth<T>], shifts[kWidth<T>] = {};
  ToFloats(unit, values);
  LoadGain<kAligned>(w, gain, at, count, weights);
  if (bias != nullptr) LoadFloats<kAligned>(bias + at, count, shifts);
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) values[i] = (values[i] - mean) * r * weights[i] + shifts[i];
  StoreFloats<kAligned>(y + at, count, values);
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kNormThreads, kNormBlocks)
    LayerNormKernel(T* __restrict__ y, float* __restrict__ mean, float* __restrict__ rstd,
                    const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ bias, Gain gain,
                    float eps, int64_t n, int64_t h) {
  const int64_t step = int64_t{blockDim.x} * kWidth<T>;
  const int64_t begin = int64_t{threadIdx.x} * kWidth<T>;
  const int64_t beyond = begin + kKept * step;  // the first unit that is not kept
  const auto value = [](float x) { return x; };
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const T* const from = x + row * h;
    T* const to = y + row * h;
    Unit<T> kept[kKept];
    float sum = 0;
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) kept[k] = LoadUnit<kAligned>(from + at, Left<kAligned, T>(h, at));
    }
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      if (begin + k * step < h) sum += SumOfUnit(kept[k], kWidth<T>, value);
    }
    for (int64_t at = beyond; at < h; at += step)
      sum += SumOfUnit(LoadUnit<kAligned>(from + at, Left<kAligned, T>(h, at)), kWidth<T>, value);
    const float m = BlockSum(sum) / static_cast<float>(h);
    const auto square_around_mean = [m](float x) { return (x - m) * (x - m); };
    sum = 0;
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) sum += SumOfUnit(kept[k], Left<kAligned, T>(h, at), square_around_mean);
    }
    for (int64_t at = beyond; at < h; at += step) {
      const int64_t count = Left<kAligned, T>(h, at);
      sum += SumOfUnit(LoadUnit<kAligned>(from + at, count), count, square_around_mean);
    }
    const float r = 1.0f / sqrtf(BlockSum(sum) / static_cast<float>(h) + eps);
    if (threadIdx.x == 0) {
      mean[row] = m;
      rstd[row] = r;
    }
    TRAINCTL_UNROLL
    for (int k = 0; k < kKept; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) StoreCentered<T, kAligned>(to, kept[k], w, gain, bias, m, r, at, Left<kAligned, T>(h, at));
    }
    for (int64_t at = beyond; at < h; at += step) {
      const int64_t count = Left<kAligned, T>(h, at);
      StoreCentered<T, kAligned>(to, LoadUnit<kAligned>(from + at, count), w, gain, bias, m, r, at, count);
    }
  }
}

template <bool kCentered, typename T>
__device__ inline void ToCentered(const Unit<T>& unit, float mean, float (&values)[kWidth<T>]) {
  ToFloats(unit, values);
  if (kCentered) {
    TRAINCTL_UNROLL
    for (int i = 0; i < kWidth<T>; ++i) values[i] -= mean;
  }
}

// Sums over a row for its gradient.
struct Dots {
  float with_x = 0;     // dy * gain * x
  float without_x = 0;  // dy * gain; computed only if x is centered
};

template <bool kCentered, typename T>
__device__ inline void AddDots(const Unit<T>& dy_unit, const Unit<T>& x_unit,
                               const float (&weights)[kWidth<T>], float mean, Dots& dots) {
  float dy[kWidth<T>], x[kWidth<T>];
  ToFloats(dy_unit, dy);
  ToCentered<kCentered>(x_unit, mean, x);
  float dot = 0;
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) dot += dy[i] * x[i] * weights[i];
  dots.with_x += dot;
  if (kCentered) {
    TRAINCTL_UNROLL
    for (int i = 0; i < kWidth<T>; ++i) dots.without_x += dy[i] * weights[i];
  }
}

template <bool kCentered, typename T>
__device__ inline void AddWeightGradient(const Unit<T>& dy_unit, const Unit<T>& x_unit, float mean, float r,
                                         float (&sums)[kWidth<T>]) {
  float dy[kWidth<T>], x[kWidth<T>];
  ToFloats(dy_unit, dy);
  ToCentered<kCentered>(x_unit, mean, x);
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) sums[i] += dy[i] * x[i] * r;
}

// Factors for the gradient of a row. `mean` and `shift` are used only if x is centered.
struct RowNumbers {
  float r, c, mean, shift;
};

// Returns sum + r * (dy * gain - x * c), or sum + r * (dy * gain - shift - x * c) if x is centered.
template <bool kCentered, typename T>
__device__ inline Unit<T> InputGradient(const Unit<T>& sum_unit, const Unit<T>& dy_unit,
                                        const Unit<T>& x_unit, const float (&weights)[kWidth<T>],
                                        const RowNumbers& row) {
  float sum[kWidth<T>], dy[kWidth<T>], x[kWidth<T>];
  ToFloats(sum_unit, sum);
  ToFloats(dy_unit, dy);
  ToCentered<kCentered>(x_unit, row.mean, x);
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) {
    if (kCentered) {
      sum[i] += row.r * (dy[i] * weights[i] - row.shift - x[i] * row.c);
    } else {
      sum[i] += row.r * (dy[i] * weights[i] - x[i] * row.c);
    }
  }
  return ToUnit(sum);
}

// The units of a row that a thread keeps.
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

// Writes the sums of each slice to sums [slices, h]. Rows of dx and dy are dy_stride elements apart. `mean`
// is read only if kCentered. dx and dy may be the same storage, because only the thread that read an element
// writes it, so neither pointer is __restrict__.
template <typename T, bool kCentered, bool kAligned>
__global__ void __launch_bounds__(kNormThreads)
    NormBackwardKernel(T* dx, float* __restrict__ sums, const T* dy, const T* __restrict__ x,
                       const float* __restrict__ mean, const float* __restrict__ rstd,
                       const T* __restrict__ w, Gain gain, bool accumulate, int64_t n, int64_t h,
                       int64_t dy_stride, int64_t x_stride, int64_t rstd_stride, int64_t rows_per_slice) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  const int64_t begin = int64_t{threadIdx.x} * W;
  const int64_t first = int64_t{blockIdx.x} * rows_per_slice;
  const int64_t end = first + rows_per_slice < n ? first + rows_per_slice : n;
  float* const slice_sums = sums + int64_t{blockIdx.x} * h;
  float kept_sums[kSummed][W] = {}, weights[W];
  NormRow<T> next;
  LoadRow<T, kAligned>(next, dx + first * dy_stride, dy + first * dy_stride, x + first * x_stride, accumulate,
                       begin, step, h);
  TRAINCTL_NO_UNROLL
  for (int64_t row = first; row < end; ++row) {
    const T* const dy_row = dy + row * dy_stride;
    const T* const x_row = x + row * x_stride;
    T* const dx_row = dx + row * dy_stride;
    const NormRow<T> kept = next;
    // Starts to load the next row before the threads wait for each other.
    if (row + 1 < end) {
      LoadRow<T, kAligned>(next, dx_row + dy_stride, dy_row + dy_stride, x_row + x_stride, accumulate, begin,
                           step, h);
    }
    const float m = kCentered ? mean[row] : 0.0f;
    Dots dots;
    TRAINCTL_UNROLL
    for (int k = 0; k < kSummed; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) {
        LoadGain<kAligned>(w, gain, at, Left<kAligned, T>(h, at), weights);
        AddDots<kCentered>(kept.dy[k], kept.x[k], weights, m, dots);
      }
    }
    TRAINCTL_NO_UNROLL
    for (int64_t at = begin + kSummed * step; at < h; at += step) {
      const int64_t count = Left<kAligned, T>(h, at);
      LoadGain<kAligned>(w, gain, at, count, weights);
      AddDots<kCentered>(LoadUnit<kAligned>(dy_row + at, count), LoadUnit<kAligned>(x_row + at, count),
                         weights, m, dots);
    }
    const float r = rstd[row * rstd_stride];
    const float c = BlockSum(dots.with_x) * r * r / static_cast<float>(h);
    const RowNumbers numbers = {r, c, m, kCentered ? BlockSum(dots.without_x) / static_cast<float>(h) : 0.0f};
    TRAINCTL_UNROLL
    for (int k = 0; k < kSummed; ++k) {
      const int64_t at = begin + k * step;
      if (at < h) {
        const int64_t count = Left<kAligned, T>(h, at);
        AddWeightGradient<kCentered>(kept.dy[k], kept.x[k], m, r, kept_sums[k]);
        LoadGain<kAligned>(w, gain, at, count, weights);
        StoreUnit<kAligned>(dx_row + at,
                            InputGradient<kCentered>(kept.sum[k], kept.dy[k], kept.x[k], weights, numbers),
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
      AddWeightGradient<kCentered>(dy_unit, x_unit, m, r, gradient);
      if (row != first) {
        float sum_so_far[W];
        LoadFloats<kAligned>(slice_sums + at, count, sum_so_far);
        TRAINCTL_UNROLL
        for (int i = 0; i < W; ++i) gradient[i] = sum_so_far[i] + gradient[i];
      }
      StoreFloats<kAligned>(slice_sums + at, count, gradient);
      LoadGain<kAligned>(w, gain, at, count, weights);
      StoreUnit<kAligned>(dx_row + at, InputGradient<kCentered>(sum, dy_unit, x_unit, weights, numbers),
                          count);
    }
  }
  TRAINCTL_UNROLL
  for (int k = 0; k < kSummed; ++k) {
    const int64_t at = begin + k * step;
    if (at < h) StoreFloats<kAligned>(slice_sums + at, Left<kAligned, T>(h, at), kept_sums[k]);
  }
}

// ---- kernels of heads ---------------------------------------------------------------------------

constexpr int kHeadThreads = 256;
constexpr int kHeadUnits = 2;  // units per lane

// Sums over a group of `lanes` neighboring lanes. All lanes of a warp must call it.
__device__ inline float GroupSum(float value, int lanes) {
  TRAINCTL_NO_UNROLL
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kHeadThreads)
    HeadNormKernel(T* __restrict__ y, float* __restrict__ rstd, const T* __restrict__ x,
                   const T* __restrict__ w, Gain gain, float eps, int64_t n, int heads, int d,
                   int64_t y_stride, int64_t x_stride, int lanes) {
  constexpr int W = kWidth<T>;
  const int groups = static_cast<int>(blockDim.x) / lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  float weights[kHeadUnits][W];
  TRAINCTL_UNROLL
  for (int k = 0; k < kHeadUnits; ++k) {
    const int at = (k * lanes + lane) * W;
    if (at < d) LoadGain<kAligned>(w, gain, at, Left<kAligned, T>(d, at), weights[k]);
  }
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    for (int first = 0; first < heads; first += groups) {
      const int head = first + group;
      const int end = head < heads ? d : 0;  // groups without a head take part only in their warp's sums
      const T* const from = x + row * x_stride + int64_t{head} * d;
      T* const to = y + row * y_stride + int64_t{head} * d;
      Unit<T> kept[kHeadUnits];
      float sum = 0;
      TRAINCTL_UNROLL
      for (int k = 0; k < kHeadUnits; ++k) {
        const int at = (k * lanes + lane) * W;
        if (at < end) {
          kept[k] = LoadUnit<kAligned>(from + at, Left<kAligned, T>(d, at));
          sum += SumOfSquares(kept[k]);
        }
      }
      const float r = 1.0f / sqrtf(GroupSum(sum, lanes) / static_cast<float>(d) + eps);
      if (lane == 0 && head < heads) rstd[row * heads + head] = r;
      TRAINCTL_UNROLL
      for (int k = 0; k < kHeadUnits; ++k) {
        const int at = (k * lanes + lane) * W;
        if (at < end) StoreScaled<T, kAligned>(to + at, kept[k], weights[k], r, Left<kAligned, T>(d, at));
      }
    }
  }
}

// Writes the sums of each slice to sums [slices, d]. Each group sums its heads, and the groups are then added
// in order. dx and dy may be the same storage, as in NormBackwardKernel.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kHeadThreads)
    HeadNormBackwardKernel(T* dx, float* __restrict__ sums, const T* dy, const T* __restrict__ x,
                           const float* __restrict__ rstd, const T* __restrict__ w, Gain gain, int64_t n,
                           int heads, int d, int64_t dy_stride, int64_t x_stride, int lanes,
                           int64_t rows_per_slice) {
  constexpr int W = kWidth<T>;
  TRAINCTL_SHARED(float, group_sums, kHeadThreads* kHeadUnits* W);
  const int groups = static_cast<int>(blockDim.x) / lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t begin = int64_t{blockIdx.x} * rows_per_slice;
  const int64_t end = begin + rows_per_slice < n ? begin + rows_per_slice : n;
  float weights[kHeadUnits][W], kept_sums[kHeadUnits][W] = {};
  TRAINCTL_UNROLL
  for (int k = 0; k < kHeadUnits; ++k) {
    const int at = (k * lanes + lane) * W;
    if (at < d) LoadGain<kAligned>(w, gain, at, Left<kAligned, T>(d, at), weights[k]);
  }
  for (int64_t row = begin; row < end; ++row) {
    for (int first = 0; first < heads; first += groups) {
      const int head = first + group;
      const int width = head < heads ? d : 0;  // as in HeadNormKernel
      const T* const dy_head = dy + row * dy_stride + int64_t{head} * d;
      const T* const x_head = x + row * x_stride + int64_t{head} * d;
      T* const dx_head = dx + row * dy_stride + int64_t{head} * d;
      Unit<T> dy_units[kHeadUnits], x_units[kHeadUnits];
      Dots dots;
      TRAINCTL_UNROLL
      for (int k = 0; k < kHeadUnits; ++k) {
        const int at = (k * lanes + lane) * W;
        if (at < width) {
          dy_units[k] = LoadUnit<kAligned>(dy_head + at, Left<kAligned, T>(d, at));
          x_units[k] = LoadUnit<kAligned>(x_head + at, Left<kAligned, T>(d, at));
          AddDots<false>(dy_units[k], x_units[k], weights[k], 0.0f, dots);
        }
      }
      const float r = head < heads ? rstd[row * heads + head] : 0.0f;
      const float c = GroupSum(dots.with_x, lanes) * r * r / static_cast<float>(d);
      TRAINCTL_UNROLL
      for (int k = 0; k < kHeadUnits; ++k) {
        const int at = (k * lanes + lane) * W;
        if (at < width) {
          AddWeightGradient<false>(dy_units[k], x_units[k], 0.0f, r, kept_sums[k]);
          const Unit<T> zero = {{0, 0, 0, 0}};
          StoreUnit<kAligned>(
              dx_head + at,
              InputGradient<false>(zero, dy_units[k], x_units[k], weights[k], RowNumbers{r, c, 0, 0}),
              Left<kAligned, T>(d, at));
        }
      }
    }
  }
  TRAINCTL_UNROLL
  for (int k = 0; k < kHeadUnits; ++k) {
    TRAINCTL_UNROLL
    for (int i = 0; i < W; ++i) group_sums[(k * W + i) * kHeadThreads + threadIdx.x] = kept_sums[k][i];
  }
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < d; column += static_cast<int>(blockDim.x)) {
    const int unit = column / W;
    const float* const of_groups = group_sums + (unit / lanes * W + column % W) * kHeadThreads + unit % lanes;
    float total = 0;
    for (int g = 0; g < groups; ++g) total += of_groups[g * lanes];
    sums[int64_t{blockIdx.x} * d + column] = total;
  }
}

// ---- launchers ----------------------------------------------------------------------------------

template <typename T>
Shape NormShape(int64_t n, int64_t h) {
  return RowShape(n, CeilDiv(h, kWidth<T> * kKept), kNormThreads);
}

// Distances between rows, in elements. `y` applies to dx and dy in the backward pass.
struct NormStrides {
  int64_t y, x, rstd;
};

template <typename T>
bool FitUnits(int64_t h, const NormStrides& strides) {
  return h % kWidth<T> == 0 && strides.y % kWidth<T> == 0 && strides.x % kWidth<T> == 0;
}

template <typename T>
void NormRows(const char* name, T* y, float* rstd, const T* x, const T* w, Gain gain, float eps, int64_t n,
              int64_t h, const NormStrides& strides) {
  const bool aligned = AreAligned(y, x, w) && FitUnits<T>(h, strides);
  Launch(name, aligned ? RmsNormKernel<T, false, true> : RmsNormKernel<T, false, false>, NormShape<T>(n, h),
         y, rstd, const_cast<T*>(x), x, w, gain, eps, n, h, strides.y, strides.x, strides.rstd);
}

template <typename T>
void RmsNorm(void* y, void* rstd, const void* x, const void* w, Gain gain, float eps, int64_t n, int64_t h) {
  if (n <= 0 || h <= 0) return;
  NormRows("rms_norm", static_cast<T*>(y), static_cast<float*>(rstd), static_cast<const T*>(x),
           static_cast<const T*>(w), gain, eps, n, h, {h, h, 1});
}

template <typename T>
void AddRmsNorm(void* sum, void* y, void* rstd, const void* x, const void* w, Gain gain, float eps, int64_t n,
                int64_t h) {
  if (n <= 0 || h <= 0) return;
  const bool aligned = AreAligned(sum, y, x, w) && h % kWidth<T> == 0;
  Launch("add_rms_norm", aligned ? RmsNormKernel<T, true, true> : RmsNormKernel<T, true, false>,
         NormShape<T>(n, h), static_cast<T*>(y), static_cast<float*>(rstd), static_cast<T*>(sum),
         static_cast<const T*>(x), static_cast<const T*>(w), gain, eps, n, h, h, h, 1);
}

// Returns a number of rows that gives enough slices to keep the device busy, but not more than the workspace
// has room for.
int64_t RowsPerNormSlice(int64_t n, int64_t h, int64_t workspace_bytes) {
  const int64_t fitting = workspace_bytes / static_cast<int64_t>(sizeof(float)) / h;
  const int64_t slices = Clamp(fitting, 1, h <= kNarrowNorm ? kMostNarrowNormSlices : kMostNormSlices);
  return CeilDiv(n, slices) > kLeastRowsPerNormSlice ? CeilDiv(n, slices) : kLeastRowsPerNormSlice;
}

// Computes the gradient of layer_norm if kCentered, otherwise that of rms_norm, for which `mean` may be null.
template <typename T, bool kCentered>
void NormRowsBackward(const char* name, T* dx, float* dw, const T* dy, const T* x, const float* mean,
                      const float* rstd, const T* w, Gain gain, bool accumulate, int64_t n, int64_t h,
                      const NormStrides& strides) {
  const bool aligned = AreAligned(dx, dy, x, w) && FitUnits<T>(h, strides);
  const int threads = ThreadsFor(CeilDiv(h, kWidth<T> * kSummed), kNormThreads);
  const Workspace workspace;
  float* const sums = static_cast<float*>(workspace.data());
  const int64_t rows_per_slice = RowsPerNormSlice(n, h, workspace.bytes());
  const int64_t slices = CeilDiv(n, rows_per_slice);
  Launch(name, aligned ? NormBackwardKernel<T, kCentered, true> : NormBackwardKernel<T, kCentered, false>,
         {.blocks_x = slices, .threads = threads}, dx, sums, dy, x, mean, rstd, w, gain, accumulate, n, h,
         strides.y, strides.x, strides.rstd, rows_per_slice);
  if (gain != Gain::kNone) AddSlices(name, dw, sums, h, slices);
}

template <typename T>
void RmsNormBackward(void* dx, void* dw, const void* dy, const void* x, const void* rstd, const void* w,
                     Gain gain, bool accumulate, int64_t n, int64_t h) {
  if (n <= 0 || h <= 0) return;
  NormRowsBackward<T, false>("rms_norm_backward", static_cast<T*>(dx), static_cast<float*>(dw),
                             static_cast<const T*>(dy), static_cast<const T*>(x), nullptr,
                             static_cast<const float*>(rstd), static_cast<const T*>(w), gain, accumulate, n,
                             h, {h, h, 1});
}

// Returns the number of units per head, rounded up to a power of two and limited to a warp.
template <typename T>
int LanesOfHead(int64_t d) {
  int lanes = 1;
  while (lanes < kWarp && lanes * kWidth<T> < d) lanes *= 2;
  return lanes;
}

template <typename T>
constexpr int64_t kWidestHead = int64_t{kHeadUnits} * kWarp* kWidth<T>;

template <typename T>
void RmsNormHeads(void* y_raw, void* rstd_raw, const void* x_raw, const void* w_raw, Gain gain, float eps,
                  int64_t n, int64_t heads, int64_t d, int64_t y_stride, int64_t x_stride) {
  if (n <= 0 || heads <= 0 || d <= 0) return;
  T* const y = static_cast<T*>(y_raw);
  float* const rstd = static_cast<float*>(rstd_raw);
  const T* const x = static_cast<const T*>(x_raw);
  const T* const w = static_cast<const T*>(w_raw);
  const NormStrides strides = {y_stride, x_stride, heads};
  if (d > kWidestHead<T>) {
    for (int64_t head = 0; head < heads; ++head)
      NormRows("rms_norm_heads", y + head * d, rstd + head, x + head * d, w, gain, eps, n, d, strides);
    return;
  }
  const int lanes = LanesOfHead<T>(d);
  const bool aligned = AreAligned(y, x, w) && FitUnits<T>(d, strides);
  Launch("rms_norm_heads", aligned ? HeadNormKernel<T, true> : HeadNormKernel<T, false>,
         RowShape(n, heads * lanes, kHeadThreads), y, rstd, x, w, gain, eps, n, heads, d, y_stride, x_stride,
         lanes);
}

template <typename T>
void RmsNormHeadsBackward(void* dx_raw, void* dw_raw, const void* dy_raw, const void* x_raw,
                          const void* rstd_raw, const void* w_raw, Gain gain, int64_t n, int64_t heads,
                          int64_t d, int64_t dy_stride, int64_t x_stride) {
  if (n <= 0 || heads <= 0 || d <= 0) return;
  T* const dx = static_cast<T*>(dx_raw);
  float* const dw = static_cast<float*>(dw_raw);
  const T* const dy = static_cast<const T*>(dy_raw);
  const T* const x = static_cast<const T*>(x_raw);
  const float* const rstd = static_cast<const float*>(rstd_raw);
  const T* const w = static_cast<const T*>(w_raw);
  const NormStrides strides = {dy_stride, x_stride, heads};
  if (d > kWidestHead<T>) {
    for (int64_t head = 0; head < heads; ++head) {
      NormRowsBackward<T, false>("rms_norm_heads_backward", dx + head * d, dw, dy + head * d, x + head * d,
                                 nullptr, rstd + head, w, gain, /*accumulate=*/false, n, d, strides);
    }
    return;
  }
  const int lanes = LanesOfHead<T>(d);
  const bool aligned = AreAligned(dx, dy, x, w) && FitUnits<T>(d, strides);
  const Workspace workspace;
  float* const sums = static_cast<float*>(workspace.data());
  const int64_t rows_per_slice = RowsPerNormSlice(n, d, workspace.bytes());
  const int64_t slices = CeilDiv(n, rows_per_slice);
  Launch("rms_norm_heads_backward",
         aligned ? HeadNormBackwardKernel<T, true> : HeadNormBackwardKernel<T, false>,
         {.blocks_x = slices, .threads = ThreadsFor(heads * lanes, kHeadThreads)}, dx, sums, dy, x, rstd, w,
         gain, n, heads, d, dy_stride, x_stride, lanes, rows_per_slice);
  if (gain != Gain::kNone) AddSlices("rms_norm_heads_backward", dw, sums, d, slices);
}

template <typename T>
void LayerNorm(void* y, void* mean, void* rstd, const void* x, const void* w, const void* bias, Gain gain,
               float eps, int64_t n, int64_t h) {
  if (n <= 0 || h <= 0) return;
  const bool aligned = AreAligned(y, x, w, bias) && h % kWidth<T> == 0;
  Launch("layer_norm", aligned ? LayerNormKernel<T, true> : LayerNormKernel<T, false>, NormShape<T>(n, h),
         static_cast<T*>(y), static_cast<float*>(mean), static_cast<float*>(rstd), static_cast<const T*>(x),
         static_cast<const T*>(w), static_cast<const T*>(bias), gain, eps, n, h);
}

template <typename T>
void LayerNormBackward(void* dx, void* dw, void* dbias, const void* dy, const void* x, const void* mean,
                       const void* rstd, const void* w, Gain gain, bool accumulate, int64_t n, int64_t h) {
  if (n <= 0 || h <= 0) return;
  // This comes first because dx and dy may be the same storage.
  if (dbias != nullptr)
    AddColumnSums("layer_norm_backward", static_cast<float*>(dbias), static_cast<const T*>(dy), n, h);
  NormRowsBackward<T, true>("layer_norm_backward", static_cast<T*>(dx), static_cast<float*>(dw),
                            static_cast<const T*>(dy), static_cast<const T*>(x),
                            static_cast<const float*>(mean), static_cast<const float*>(rstd),
                            static_cast<const T*>(w), gain, accumulate, n, h, {h, h, 1});
}

template <typename T>
void FillNormOf(TypedKernels* table) {
  table->rms_norm = RmsNorm<T>;
  table->add_rms_norm = AddRmsNorm<T>;
  table->rms_norm_backward = RmsNormBackward<T>;
  table->layer_norm = LayerNorm<T>;
  table->layer_norm_backward = LayerNormBackward<T>;
  table->rms_norm_heads = RmsNormHeads<T>;
  table->rms_norm_heads_backward = RmsNormHeadsBackward<T>;
}

}  // namespace

void FillNorm(Kernels* table) {
  FillNormOf<float>(&table->f32);
  FillNormOf<BF16>(&table->bf16);
}

}  // namespace trainctl::kernels::cuda
