// Activations with a gate (SwiGLU and others) and without one, and their gradients. With a gate, blocks
// process rows, and threads the units of a row's half. Without a gate, each thread processes units of a flat
// array, one grid apart. One kernel contains all activations and selects one per unit.
//
// expf is used rather than __expf, because its error stays within 2 ulp over the whole range, while that of
// __expf grows with |x|. These kernels are limited by memory, not by arithmetic.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int kSwiGluThreads = 256;

__device__ inline float Exp(float x) { return expf(x); }

#define TRAINCTL_ACTIVATION __device__ inline
#include "kernels/activations.inc.h"
#undef TRAINCTL_ACTIVATION

// ---- kernels ------------------------------------------------------------------------------------

// Calls `activate(gate, up)` for each unit of the rows' halves. It replaces `up`, which is then written to
// out.
template <bool kAligned, typename T, typename Function>
__device__ inline void ForGatedUnits(T* __restrict__ out, const T* __restrict__ gate_up, int64_t n, int64_t f,
                                     const Function& activate) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const T* gates = gate_up + row * 2 * f;
    for (int64_t at = int64_t{threadIdx.x} * W; at < f; at += step) {
      float gate[W], up[W];
      LoadFloats<kAligned>(gates + at, Left<kAligned, T>(f, at), gate);
      LoadFloats<kAligned>(gates + f + at, Left<kAligned, T>(f, at), up);
      activate(gate, up);
      StoreFloats<kAligned>(out + row * f + at, Left<kAligned, T>(f, at), up);
    }
  }
}

// Calls `differentiate(gate, up, dy)` for each unit of the rows' halves. It replaces `gate` and `up` by their
// gradients, which are then written to dgate_up. dgate_up and gate_up may be the same storage, because only
// the thread that read an element writes it, so neither pointer is __restrict__.
template <bool kAligned, typename T, typename Function>
__device__ inline void ForGatedGradients(T* dgate_up, const T* __restrict__ dout, const T* gate_up, int64_t n,
                                         int64_t f, const Function& differentiate) {
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
      differentiate(gate, up, dy);
      StoreFloats<kAligned>(dgates + at, Left<kAligned, T>(f, at), gate);
      StoreFloats<kAligned>(dgates + f + at, Left<kAligned, T>(f, at), up);
    }
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kSwiGluThreads)
    SwiGluKernel(T* __restrict__ out, const T* __restrict__ gate_up, int64_t n, int64_t f) {
  constexpr int W = kWidth<T>;
  ForGatedUnits<kAligned>(out, gate_up, n, f, [](const float(&gate)[W], float(&up)[W]) {
    TRAINCTL_UNROLL
    for (int i = 0; i < W; ++i) up[i] *= Activate<Activation::kSiLU>(gate[i]);
  });
}

// Multiplies in another order than GatedActivationBackwardKernel would, and so rounds differently.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kSwiGluThreads)
    SwiGluBackwardKernel(T* dgate_up, const T* __restrict__ dout, const T* gate_up, int64_t n, int64_t f) {
  constexpr int W = kWidth<T>;
  ForGatedGradients<kAligned>(dgate_up, dout, gate_up, n, f,
                              [](float(&gate)[W], float(&up)[W], const float(&dy)[W]) {
                                TRAINCTL_UNROLL
                                for (int i = 0; i < W; ++i) {
                                  const float g = gate[i];
                                  const float sigmoid = 1.0f / (1.0f + expf(-g));
                                  gate[i] = dy[i] * up[i] * sigmoid * (1.0f + g * (1.0f - sigmoid));
                                  up[i] = dy[i] * g * sigmoid;
                                }
                              });
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kSwiGluThreads)
    GatedActivationKernel(T* __restrict__ out, const T* __restrict__ gate_up, Activation activation,
                          int64_t n, int64_t f) {
  constexpr int W = kWidth<T>;
  ForGatedUnits<kAligned>(out, gate_up, n, f, [activation](const float(&gate)[W], float(&up)[W]) {
    WithActivation(activation, [&](auto constant) {
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) up[i] *= Activate<decltype(constant)::kValue>(gate[i]);
    });
  });
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kSwiGluThreads)
    GatedActivationBackwardKernel(T* dgate_up, const T* __restrict__ dout, const T* gate_up,
                                  Activation activation, int64_t n, int64_t f) {
  constexpr int W = kWidth<T>;
  ForGatedGradients<kAligned>(
      dgate_up, dout, gate_up, n, f, [activation](float(&gate)[W], float(&up)[W], const float(&dy)[W]) {
        WithActivation(activation, [&](auto constant) {
          TRAINCTL_UNROLL
          for (int i = 0; i < W; ++i) {
            const ValueAndSlope<float> at_gate = ActivateWithSlope<decltype(constant)::kValue>(gate[i]);
            gate[i] = dy[i] * up[i] * at_gate.slope;
            up[i] = dy[i] * at_gate.value;
          }
        });
      });
}

// out and x may be the same storage, so neither pointer is __restrict__. The same holds for dx and either
// input of the gradient.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    ActivationKernel(T* out, const T* x, Activation activation, int64_t count) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    float values[W];
    LoadFloats<kAligned>(x + at, count - at, values);
    WithActivation(activation, [&](auto constant) {
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) values[i] = Activate<decltype(constant)::kValue>(values[i]);
    });
    StoreFloats<kAligned>(out + at, count - at, values);
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    ActivationBackwardKernel(T* dx, const T* dout, const T* x, Activation activation, int64_t count) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    float values[W], dy[W];
    LoadFloats<kAligned>(x + at, count - at, values);
    LoadFloats<kAligned>(dout + at, count - at, dy);
    WithActivation(activation, [&](auto constant) {
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) dy[i] *= ActivateWithSlope<decltype(constant)::kValue>(values[i]).slope;
    });
    StoreFloats<kAligned>(dx + at, count - at, dy);
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

template <typename T>
void GatedActivation(void* out, const void* gate_up, Activation activation, int64_t n, int64_t f) {
  if (activation == Activation::kSiLU) return SwiGlu<T>(out, gate_up, n, f);
  if (n <= 0 || f <= 0) return;
  const bool aligned = AreAligned(out, gate_up) && f % kWidth<T> == 0;
  Launch("gated_activation", aligned ? GatedActivationKernel<T, true> : GatedActivationKernel<T, false>,
         RowShape(n, CeilDiv(f, kWidth<T>), kSwiGluThreads), static_cast<T*>(out),
         static_cast<const T*>(gate_up), activation, n, f);
}

template <typename T>
void GatedActivationBackward(void* dgate_up, const void* dout, const void* gate_up, Activation activation,
                             int64_t n, int64_t f) {
  if (activation == Activation::kSiLU) return SwiGluBackward<T>(dgate_up, dout, gate_up, n, f);
  if (n <= 0 || f <= 0) return;
  const bool aligned = AreAligned(dgate_up, dout, gate_up) && f % kWidth<T> == 0;
  Launch("gated_activation_backward",
         aligned ? GatedActivationBackwardKernel<T, true> : GatedActivationBackwardKernel<T, false>,
         RowShape(n, CeilDiv(f, kWidth<T>), kSwiGluThreads), static_cast<T*>(dgate_up),
         static_cast<const T*>(dout), static_cast<const T*>(gate_up), activation, n, f);
}

template <typename T>
void ActivateAll(void* out, const void* x, Activation activation, int64_t count) {
  if (count <= 0) return;
  Launch("activation", AreAligned(out, x) ? ActivationKernel<T, true> : ActivationKernel<T, false>,
         FlatShape(CeilDiv(count, kWidth<T>)), static_cast<T*>(out), static_cast<const T*>(x), activation,
         count);
}

template <typename T>
void ActivationBackward(void* dx, const void* dout, const void* x, Activation activation, int64_t count) {
  if (count <= 0) return;
  Launch("activation_backward",
         AreAligned(dx, dout, x) ? ActivationBackwardKernel<T, true> : ActivationBackwardKernel<T, false>,
         FlatShape(CeilDiv(count, kWidth<T>)), static_cast<T*>(dx), static_cast<const T*>(dout),
         static_cast<const T*>(x), activation, count);
}

template <typename T>
void FillActivationOf(TypedKernels* table) {
  table->gated_activation = GatedActivation<T>;
  table->gated_activation_backward = GatedActivationBackward<T>;
  table->activation = ActivateAll<T>;
  table->activation_backward = ActivationBackward<T>;
}

}  // namespace

void FillActivation(Kernels* table) {
  FillActivationOf<float>(&table->f32);
  FillActivationOf<BF16>(&table->bf16);
}

}  // namespace trainctl::kernels::cuda
