// add, accumulate, assign, from_float. Each thread takes units of one flat array, a grid apart.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

// ---- kernels ------------------------------------------------------------------------------------

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    AddKernel(T* __restrict__ y, const T* __restrict__ x, int64_t count) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    float sum[W], other[W];
    LoadFloats<kAligned>(y + at, count - at, sum);
    LoadFloats<kAligned>(x + at, count - at, other);
    TRAINCTL_UNROLL
    for (int i = 0; i < W; ++i) sum[i] += other[i];
    StoreFloats<kAligned>(y + at, count - at, sum);
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    AccumulateKernel(float* __restrict__ sum, const T* __restrict__ x, int64_t count) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    float values[W], other[W];
    LoadFloats<kAligned>(sum + at, count - at, values);
    LoadFloats<kAligned>(x + at, count - at, other);
    TRAINCTL_UNROLL
    for (int i = 0; i < W; ++i) values[i] += other[i];
    StoreFloats<kAligned>(sum + at, count - at, values);
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    AssignKernel(float* __restrict__ out, const T* __restrict__ x, int64_t count) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    float values[W];
    LoadFloats<kAligned>(x + at, count - at, values);
    StoreFloats<kAligned>(out + at, count - at, values);
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    FromFloatKernel(T* __restrict__ out, const float* __restrict__ x, int64_t count) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    float values[W];
    LoadFloats<kAligned>(x + at, count - at, values);
    StoreFloats<kAligned>(out + at, count - at, values);
  }
}

// ---- launchers ----------------------------------------------------------------------------------

template <typename T>
void Add(void* y, const void* x, int64_t count) {
  if (count <= 0) return;
  Launch("add", AreAligned(y, x) ? AddKernel<T, true> : AddKernel<T, false>,
         FlatShape(CeilDiv(count, kWidth<T>)), static_cast<T*>(y), static_cast<const T*>(x), count);
}

template <typename T>
void Accumulate(float* sum, const void* x, int64_t count) {
  if (count <= 0) return;
  Launch("accumulate", AreAligned(sum, x) ? AccumulateKernel<T, true> : AccumulateKernel<T, false>,
         FlatShape(CeilDiv(count, kWidth<T>)), sum, static_cast<const T*>(x), count);
}

template <typename T>
void Assign(float* out, const void* x, int64_t count) {
  if (count <= 0) return;
  Launch("assign", AreAligned(out, x) ? AssignKernel<T, true> : AssignKernel<T, false>,
         FlatShape(CeilDiv(count, kWidth<T>)), out, static_cast<const T*>(x), count);
}

template <typename T>
void FromFloat(void* out, const float* x, int64_t count) {
  if (count <= 0) return;
  Launch("from_float", AreAligned(out, x) ? FromFloatKernel<T, true> : FromFloatKernel<T, false>,
         FlatShape(CeilDiv(count, kWidth<T>)), static_cast<T*>(out), x, count);
}

template <typename T>
void FillElementwiseOf(TypedKernels* table) {
  table->add = Add<T>;
  table->accumulate = Accumulate<T>;
  table->assign = Assign<T>;
  table->from_float = FromFloat<T>;
}

}  // namespace

void FillElementwise(Kernels* table) {
  FillElementwiseOf<float>(&table->f32);
  FillElementwiseOf<BF16>(&table->bf16);
}

}  // namespace trainctl::kernels::cuda
