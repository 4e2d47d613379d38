// swiglu and its gradient. Blocks step over rows, threads over the units of a row's half.
//
// expf rather than __expf: its error stays within 2 ulp over the whole range (that of __expf grows with |x|),
// and these kernels wait for memory, not for arithmetic.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int kSwiGluThreads = 256;

// ---- kernels ------------------------------------------------------------------------------------

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kSwiGluThreads)
    SwiGluKernel(T* __restrict__ out, const T* __restrict__ gate_up, int64_t n, int64_t f) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const T* gates = gate_up + row * 2 * f;
    for (int64_t at = int64_t{threadIdx.x} * W; at < f; at += step) {
      float gate[W], up[W];
      LoadFloats<kAligned>(gates + at, Left<kAligned, T>(f, at), gate);
      LoadFloats<kAligned>(gates + f + at, Left<kAligned, T>(f, at), up);
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) up[i] *= gate[i] / (1.0f + expf(-gate[i]));
      StoreFloats<kAligned>(out + row * f + at, Left<kAligned, T>(f, at), up);
    }
  }
}

// dgate_up may be gate_up: a thread writes where it alone has read before. (So no __restrict__ on these two.)
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kSwiGluThreads)
    SwiGluBackwardKernel(T* dgate_up, const T* __restrict__ dout, const T* gate_up, int64_t n, int64_t f) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const T* gates = gate_up + row * 2 * f;
    T* dgates = dgate_up + row * 2 * f;
    for (int64_t at = int64_t{threadIdx.x} * W; at < f; at += step) {
      float gate[W], up[W], dy[W];
      LoadFloats<kAligned>(gates + at, Left<kAligned, T>(f, at), gate);
      LoadFloats<kAligned>(gates + f + at, Left<kAligned, T>(f, at), up);
      LoadFloats<kAligned>(dout + row * f + at, Left<kAligned, T>(f, at), dy);
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) {
        const float g = gate[i];
        const float sigmoid = 1.0f / (1.0f + expf(-g));
        gate[i] = dy[i] * up[i] * sigmoid * (1.0f + g * (1.0f - sigmoid));
        up[i] = dy[i] * g * sigmoid;
      }
      StoreFloats<kAligned>(dgates + at, Left<kAligned, T>(f, at), gate);
      StoreFloats<kAligned>(dgates + f + at, Left<kAligned, T>(f, at), up);
    }
  }
}

// ---- launchers ----------------------------------------------------------------------------------

template <typename T>
void SwiGlu(void* out, const void* gate_up, int64_t n, int64_t f) {
  if (n <= 0 || f <= 0) return;
  const bool aligned = AreAligned(out, gate_up) && f % kWidth<T> == 0;
  Launch("swiglu", aligned ? SwiGluKernel<T, true> : SwiGluKernel<T, false>,
         RowShape(n, CeilDiv(f, kWidth<T>), kSwiGluThreads), static_cast<T*>(out),
         static_cast<const T*>(gate_up), n, f);
}

template <typename T>
void SwiGluBackward(void* dgate_up, const void* dout, const void* gate_up, int64_t n, int64_t f) {
  if (n <= 0 || f <= 0) return;
  const bool aligned = AreAligned(dgate_up, dout, gate_up) && f % kWidth<T> == 0;
  Launch("swiglu_backward", aligned ? SwiGluBackwardKernel<T, true> : SwiGluBackwardKernel<T, false>,
         RowShape(n, CeilDiv(f, kWidth<T>), kSwiGluThreads), static_cast<T*>(dgate_up),
         static_cast<const T*>(dout), static_cast<const T*>(gate_up), n, f);
}

}  // namespace

void FillSwiGlu(Kernels* table) {
  table->f32.swiglu = SwiGlu<float>;
  table->f32.swiglu_backward = SwiGluBackward<float>;
  table->bf16.swiglu = SwiGlu<BF16>;
  table->bf16.swiglu_backward = SwiGluBackward<BF16>;
}

}  // namespace trainctl::kernels::cuda
