// rope and join_heads. Blocks process rows. A thread rotates one unit of a head's lower half
// with the matching unit of its upper half, or the neighbors within one unit.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int kRopeThreads = 256;

// W pairs by their angles, `sign` of them.
template <int W>
__device__ inline void Turn(float (&low)[W], float (&high)[W], const float (&cos)[W], const float (&sin)[W],
                            float sign) {
  TRAINCTL_UNROLL
  for (int i = 0; i < W; ++i) {
    const float turned = low[i] * cos[i] - sign * high[i] * sin[i];
    high[i] = high[i] * cos[i] + sign * low[i] * sin[i];
    low[i] = turned;
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kRopeThreads)
    RopeKernel(T* x, const int32_t* __restrict__ positions, const float* __restrict__ cos,
               const float* __restrict__ sin, float sign, int64_t n, int64_t heads, int64_t d, int half,
               int64_t row_stride) {
  constexpr int W = kWidth<T>;
  const int units_per_half = (half + W - 1) / W;
  const int units = static_cast<int>(heads) * units_per_half;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const int64_t angles = int64_t{positions[row]} * half;
    for (int unit = static_cast<int>(threadIdx.x); unit < units; unit += static_cast<int>(blockDim.x)) {
      const int at = unit % units_per_half * W;
      T* low = x + row * row_stride + unit / units_per_half * d + at;
      T* high = low + half;
      float a[W], b[W], c[W], s[W];
      LoadFloats<kAligned>(low, Left<kAligned, T>(half, at), a);
      LoadFloats<kAligned>(high, Left<kAligned, T>(half, at), b);
      LoadFloats<kAligned>(cos + angles + at, Left<kAligned, T>(half, at), c);
      LoadFloats<kAligned>(sin + angles + at, Left<kAligned, T>(half, at), s);
      Turn<W>(a, b, c, s, sign);
      StoreFloats<kAligned>(low, Left<kAligned, T>(half, at), a);
      StoreFloats<kAligned>(high, Left<kAligned, T>(half, at), b);
    }
  }
}

// Rotates the first 2 * half elements of each head.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kRopeThreads)
    NeighborRopeKernel(T* x, const int32_t* __restrict__ positions, const float* __restrict__ cos,
                       const float* __restrict__ sin, float sign, int64_t n, int64_t heads, int64_t d,
                       int half, int64_t row_stride) {
  constexpr int W = kWidth<T>;
  const int units_per_head = (2 * half + W - 1) / W;
  const int units = static_cast<int>(heads) * units_per_head;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const int64_t angles = int64_t{positions[row]} * half;
    for (int unit = static_cast<int>(threadIdx.x); unit < units; unit += static_cast<int>(blockDim.x)) {
      const int at = unit % units_per_head * W;
      const int64_t count = Left<kAligned, T>(2 * half, at);
      T* const from = x + row * row_stride + unit / units_per_head * d + at;
      float values[W];
      LoadFloats<kAligned>(from, count, values);
      TRAINCTL_UNROLL
      for (int i = 0; i < W; i += 2) {
        if (i < count) {
          const float c = cos[angles + (at + i) / 2], s = sin[angles + (at + i) / 2];
          const float turned = values[i] * c - sign * values[i + 1] * s;
          values[i + 1] = values[i + 1] * c + sign * values[i] * s;
          values[i] = turned;
        }
      }
      StoreFloats<kAligned>(from, count, values);
    }
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kRopeThreads)
    JoinHeadsKernel(T* __restrict__ out, const T* __restrict__ dq, const T* __restrict__ dk,
                    const T* __restrict__ dv, const int32_t* __restrict__ positions,
                    const float* __restrict__ cos, const float* __restrict__ sin, int64_t n, int64_t heads,
                    int64_t kv_heads, int64_t d) {
  constexpr int W = kWidth<T>;
  const int half = static_cast<int>(d / 2);
  const int units_per_half = (half + W - 1) / W;
  const int units = static_cast<int>(heads + 2 * kv_heads) * units_per_half;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const int64_t angles = int64_t{positions[row]} * half;
    for (int unit = static_cast<int>(threadIdx.x); unit < units; unit += static_cast<int>(blockDim.x)) {
      const int64_t head = unit / units_per_half;
      const int at = unit % units_per_half * W;
      const bool is_query = head < heads, is_value = head >= heads + kv_heads;
      const T* from = is_query ? dq + (row * heads + head) * d
                               : (is_value ? dv - kv_heads * d : dk) + (row * kv_heads + head - heads) * d;
      T* to = out + (row * (heads + 2 * kv_heads) + head) * d + at;
      float a[W], b[W];
      LoadFloats<kAligned>(from + at, Left<kAligned, T>(half, at), a);
      LoadFloats<kAligned>(from + at + half, Left<kAligned, T>(half, at), b);
      if (!is_value) {
        float c[W], s[W];
        LoadFloats<kAligned>(cos + angles + at, Left<kAligned, T>(half, at), c);
        LoadFloats<kAligned>(sin + angles + at, Left<kAligned, T>(half, at), s);
        Turn<W>(a, b, c, s, -1.0f);
      }
      StoreFloats<kAligned>(to, Left<kAligned, T>(half, at), a);
      StoreFloats<kAligned>(to + half, Left<kAligned, T>(half, at), b);
    }
  }
}

template <typename T>
void Rope(void* x, const int32_t* positions, const float* cos, const float* sin, float sign, RopePairs pairs,
          int64_t n, int64_t heads, int64_t d, int64_t rotated, int64_t row_stride) {
  const int64_t half = rotated / 2;
  if (n <= 0 || heads <= 0 || half <= 0) return;
  const bool are_neighbors = pairs == RopePairs::kNeighbors;
  const int64_t span = are_neighbors ? 2 * half : half;  // elements that threads divide into units
  const bool aligned =
      AreAligned(x, cos, sin) && span % kWidth<T> == 0 && d % kWidth<T> == 0 && row_stride % kWidth<T> == 0;
  const auto kernel = are_neighbors ? (aligned ? NeighborRopeKernel<T, true> : NeighborRopeKernel<T, false>)
                                    : (aligned ? RopeKernel<T, true> : RopeKernel<T, false>);
  Launch("rope", kernel, RowShape(n, heads * CeilDiv(span, kWidth<T>), kRopeThreads), static_cast<T*>(x),
         positions, cos, sin, sign, n, heads, d, half, row_stride);
}

template <typename T>
void JoinHeads(void* out, const void* dq, const void* dk, const void* dv, const int32_t* positions,
               const float* cos, const float* sin, int64_t n, int64_t heads, int64_t kv_heads, int64_t d) {
  const int64_t half = d / 2;
  if (n <= 0 || heads <= 0 || half <= 0) return;
  const bool aligned = AreAligned(out, dq, dk, dv, cos, sin) && half % kWidth<T> == 0;
  Launch("join_heads", aligned ? JoinHeadsKernel<T, true> : JoinHeadsKernel<T, false>,
         RowShape(n, (heads + 2 * kv_heads) * CeilDiv(half, kWidth<T>), kRopeThreads), static_cast<T*>(out),
         static_cast<const T*>(dq), static_cast<const T*>(dk), static_cast<const T*>(dv), positions, cos, sin,
         n, heads, kv_heads, d);
}

template <typename T>
void FillRopeOf(TypedKernels* table) {
  table->rope = Rope<T>;
  table->join_heads = JoinHeads<T>;
}

}  // namespace

void FillRope(Kernels* table) {
  FillRopeOf<float>(&table->f32);
  FillRopeOf<BF16>(&table->bf16);
}

}  // namespace trainctl::kernels::cuda
