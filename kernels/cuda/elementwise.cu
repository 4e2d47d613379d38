// scale, add, accumulate, assign and round. Each thread processes units of a flat array, one grid apart.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

// Elements of a unit: 16 bytes of the narrower type.
template <typename Y, typename X>
constexpr int kWidthOfBoth = kWidth<Y> > kWidth<X> ? kWidth<Y> : kWidth<X>;

// ---- kernels ------------------------------------------------------------------------------------

// y += x
template <typename Y, typename X, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    AddKernel(Y* __restrict__ y, const X* __restrict__ x, int64_t count) {
  constexpr int W = kWidthOfBoth<Y, X>;
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

// out = factor * x. out and x may be the same storage, so neither pointer is __restrict__.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads) ScaleKernel(T* out, const T* x, float factor, int64_t count) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    float values[W];
    LoadFloats<kAligned>(x + at, count - at, values);
    TRAINCTL_UNROLL
    for (int i = 0; i < W; ++i) values[i] *= factor;
    StoreFloats<kAligned>(out + at, count - at, values);
  }
}

// y = x
template <typename Y, typename X, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    ConvertKernel(Y* __restrict__ y, const X* __restrict__ x, int64_t count) {
  constexpr int W = kWidthOfBoth<Y, X>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    float values[W];
    LoadFloats<kAligned>(x + at, count - at, values);
    StoreFloats<kAligned>(y + at, count - at, values);
  }
}

// ---- launchers ----------------------------------------------------------------------------------

template <typename Y, typename X>
void AddTo(const char* name, Y* y, const X* x, int64_t count) {
  if (count <= 0) return;
  Launch(name, AreAligned(y, x) ? AddKernel<Y, X, true> : AddKernel<Y, X, false>,
         FlatShape(CeilDiv(count, kWidthOfBoth<Y, X>)), y, x, count);
}

template <typename Y, typename X>
void Convert(const char* name, Y* y, const X* x, int64_t count) {
  if (count <= 0) return;
  Launch(name, AreAligned(y, x) ? ConvertKernel<Y, X, true> : ConvertKernel<Y, X, false>,
         FlatShape(CeilDiv(count, kWidthOfBoth<Y, X>)), y, x, count);
}

template <typename T>
void Scale(void* out, const void* x, float factor, int64_t count) {
  if (count <= 0) return;
  Launch("scale", AreAligned(out, x) ? ScaleKernel<T, true> : ScaleKernel<T, false>,
         FlatShape(CeilDiv(count, kWidth<T>)), static_cast<T*>(out), static_cast<const T*>(x), factor, count);
}

template <typename T>
void Add(void* y, const void* x, int64_t count) {
  AddTo("add", static_cast<T*>(y), static_cast<const T*>(x), count);
}

template <typename T>
void Accumulate(void* sum, const void* x, int64_t count) {
  AddTo("accumulate", static_cast<float*>(sum), static_cast<const T*>(x), count);
}

template <typename T>
void Assign(void* out, const void* x, int64_t count) {
  Convert("assign", static_cast<float*>(out), static_cast<const T*>(x), count);
}

template <typename T>
void Round(void* out, const void* x, int64_t count) {
  Convert("round", static_cast<T*>(out), static_cast<const float*>(x), count);
}

template <typename T>
void FillElementwiseOf(TypedKernels* table) {
  table->scale = Scale<T>;
  table->add = Add<T>;
  table->accumulate = Accumulate<T>;
  table->assign = Assign<T>;
  table->round = Round<T>;
}

}  // namespace

void FillElementwise(Kernels* table) {
  FillElementwiseOf<float>(&table->f32);
  FillElementwiseOf<BF16>(&table->bf16);
}

}  // namespace trainctl::kernels::cuda
