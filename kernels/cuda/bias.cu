// add_bias and its gradient.

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int kBiasThreads = 256;

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBiasThreads)
    AddBiasKernel(T* __restrict__ y, const T* __restrict__ bias, int64_t n, int64_t cols) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    T* to = y + row * cols;
    for (int64_t at = int64_t{threadIdx.x} * W; at < cols; at += step) {
      float values[W], added[W];
      LoadFloats<kAligned>(to + at, Left<kAligned, T>(cols, at), values);
      LoadFloats<kAligned>(bias + at, Left<kAligned, T>(cols, at), added);
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) values[i] += added[i];
      StoreFloats<kAligned>(to + at, Left<kAligned, T>(cols, at), values);
    }
  }
}

template <typename T>
void AddBias(void* y, const void* bias, int64_t n, int64_t cols) {
  if (n <= 0 || cols <= 0) return;
  const bool aligned = AreAligned(y, bias) && cols % kWidth<T> == 0;
  Launch("add_bias", aligned ? AddBiasKernel<T, true> : AddBiasKernel<T, false>,
         RowShape(n, CeilDiv(cols, kWidth<T>), kBiasThreads), static_cast<T*>(y), static_cast<const T*>(bias),
         n, cols);
}

template <typename T>
void BiasGradient(void* gradient, const void* dy, int64_t n, int64_t cols) {
  if (n <= 0 || cols <= 0) return;
  AddColumnSums("bias_gradient", static_cast<float*>(gradient), static_cast<const T*>(dy), n, cols);
}

template <typename T>
void FillBiasOf(TypedKernels* table) {
  table->add_bias = AddBias<T>;
  table->bias_gradient = BiasGradient<T>;
}

}  // namespace

void FillBias(Kernels* table) {
  FillBiasOf<float>(&table->f32);
  FillBiasOf<BF16>(&table->bf16);
}

}  // namespace trainctl::kernels::cuda
