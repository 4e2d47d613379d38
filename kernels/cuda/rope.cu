// rope. Blocks step over rows; a thread turns one unit of a head's lower half with the same of its upper
// half.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int kRopeThreads = 256;

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kRopeThreads)
    RopeKernel(T* x, const int32_t* __restrict__ positions, const float* __restrict__ cos,
               const float* __restrict__ sin, float sign, int64_t n, int64_t heads, int64_t d,
               int64_t row_stride) {
  constexpr int W = kWidth<T>;
  const int half = static_cast<int>(d / 2);
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
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) {
        const float turned = a[i] * c[i] - sign * b[i] * s[i];
        b[i] = b[i] * c[i] + sign * a[i] * s[i];
        a[i] = turned;
      }
      StoreFloats<kAligned>(low, Left<kAligned, T>(half, at), a);
      StoreFloats<kAligned>(high, Left<kAligned, T>(half, at), b);
    }
  }
}

template <typename T>
void Rope(void* x, const int32_t* positions, const float* cos, const float* sin, float sign, int64_t n,
          int64_t heads, int64_t d, int64_t row_stride) {
  const int64_t half = d / 2;
  if (n <= 0 || heads <= 0 || half <= 0) return;
  const bool aligned =
      AreAligned(x, cos, sin) && half % kWidth<T> == 0 && d % 2 == 0 && row_stride % kWidth<T> == 0;
  Launch("rope", aligned ? RopeKernel<T, true> : RopeKernel<T, false>,
         RowShape(n, heads * CeilDiv(half, kWidth<T>), kRopeThreads), static_cast<T*>(x), positions, cos, sin,
         sign, n, heads, d, row_stride);
}

}  // namespace

void FillRope(Kernels* table) {
  table->f32.rope = Rope<float>;
  table->bf16.rope = Rope<BF16>;
}

}  // namespace trainctl::kernels::cuda
