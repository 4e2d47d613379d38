// What the optimizer and the reductions of gradients use, in fp32: adamw, sum_of_squares, sum_in_order.

#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int W = kWidth<float>;

// ---- kernels ------------------------------------------------------------------------------------

struct AdamWFactors {
  float decay, step, inverse_root2, beta1, beta2, eps, gradient_scale;
};

template <bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    AdamWKernel(float* __restrict__ master, float* __restrict__ exp_avg, float* __restrict__ exp_avg_sq,
                const float* __restrict__ gradient, AdamWFactors o, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    const int64_t left = count - at;
    float weight[W], m[W], v[W], g[W];
    LoadFloats<kAligned>(gradient + at, left, g);
    LoadFloats<kAligned>(exp_avg + at, left, m);
    LoadFloats<kAligned>(exp_avg_sq + at, left, v);
    LoadFloats<kAligned>(master + at, left, weight);
    TRAINCTL_UNROLL
    for (int i = 0; i < W; ++i) {
      const float scaled = g[i] * o.gradient_scale;
      m[i] = o.beta1 * m[i] + (1.0f - o.beta1) * scaled;
      v[i] = o.beta2 * v[i] + (1.0f - o.beta2) * scaled * scaled;
      weight[i] = weight[i] * o.decay - o.step * m[i] / (sqrtf(v[i]) * o.inverse_root2 + o.eps);
    }
    StoreFloats<kAligned>(exp_avg + at, left, m);
    StoreFloats<kAligned>(exp_avg_sq + at, left, v);
    StoreFloats<kAligned>(master + at, left, weight);
  }
}

// How many blocks share a sum of squares is a matter of `count` alone, so that devices agree.
constexpr int64_t kMostSquareBlocks = 1024;

template <bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    SumOfSquaresKernel(double* __restrict__ block_sums, const float* __restrict__ x, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  double sum = 0;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    float values[W];
    LoadFloats<kAligned>(x + at, count - at, values);
    TRAINCTL_UNROLL
    for (int i = 0; i < W; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) block_sums[blockIdx.x] = sum;
}

// One block.
template <typename Unused>
__global__ void __launch_bounds__(kFlatThreads)
    AddBlockSumsKernel(double* __restrict__ sum, const double* __restrict__ block_sums, int64_t blocks) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += blockDim.x) total += block_sums[i];
  total = BlockSum(total);
  if (threadIdx.x == 0) *sum += total;
}

// As many as one launch takes (a kernel's arguments have 4 KiB).
constexpr int kMostInputs = 256;
struct Inputs {
  const float* at[kMostInputs];
};

// out may be one of the inputs, so nothing here is __restrict__.
template <bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    SumInOrderKernel(float* out, Inputs inputs, int num_inputs, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    float sum[W];
    LoadFloats<kAligned>(inputs.at[0] + at, count - at, sum);
    for (int k = 1; k < num_inputs; ++k) {
      float values[W];
      LoadFloats<kAligned>(inputs.at[k] + at, count - at, values);
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) sum[i] += values[i];
    }
    StoreFloats<kAligned>(out + at, count - at, sum);
  }
}

// ---- launchers ----------------------------------------------------------------------------------

void AdamW(float* master, float* exp_avg, float* exp_avg_sq, const float* gradient, const AdamWOptions& o,
           int64_t count) {
  if (count <= 0) return;
  const AdamWFactors factors = {.decay = 1.0f - o.lr * o.weight_decay,
                                .step = o.lr / o.bias_correction1,
                                .inverse_root2 = 1.0f / std::sqrt(o.bias_correction2),
                                .beta1 = o.beta1,
                                .beta2 = o.beta2,
                                .eps = o.eps,
                                .gradient_scale = o.gradient_scale};
  Launch("adamw", AreAligned(master, exp_avg, exp_avg_sq, gradient) ? AdamWKernel<true> : AdamWKernel<false>,
         FlatShape(CeilDiv(count, W)), master, exp_avg, exp_avg_sq, gradient, factors, count);
}

void SumOfSquares(double* sum, const float* x, int64_t count) {
  if (count <= 0) return;
  const Workspace workspace;
  double* block_sums = static_cast<double*>(workspace.data());
  const int64_t blocks = Clamp(CeilDiv(count, int64_t{W} * kFlatThreads), 1, kMostSquareBlocks);
  Launch("sum_of_squares", AreAligned(x) ? SumOfSquaresKernel<true> : SumOfSquaresKernel<false>,
         {.blocks_x = blocks, .threads = kFlatThreads}, block_sums, x, count);
  Launch("sum_of_squares", AddBlockSumsKernel<void>, {.threads = kFlatThreads}, sum, block_sums, blocks);
}

void LaunchSum(float* out, const Inputs& inputs, int num_inputs, int64_t count) {
  bool aligned = AreAligned(out);
  for (int k = 0; k < num_inputs; ++k) aligned = aligned && AreAligned(inputs.at[k]);
  Launch("sum_in_order", aligned ? SumInOrderKernel<true> : SumInOrderKernel<false>,
         FlatShape(CeilDiv(count, W)), out, inputs, num_inputs, count);
}

void SumInOrder(float* out, const float* const* inputs, int num_inputs, int64_t count) {
  if (count <= 0 || num_inputs <= 0) return;
  Inputs listed = {};
  if (num_inputs <= kMostInputs) {
    for (int k = 0; k < num_inputs; ++k) listed.at[k] = inputs[k];
    LaunchSum(out, listed, num_inputs, count);
    return;
  }
  // More than a launch takes: by pieces through the workspace, as `out` may be an input that comes later.
  const Workspace workspace;
  float* partial = static_cast<float*>(workspace.data());
  const int64_t fitting = workspace.bytes() / static_cast<int64_t>(sizeof(float)) / W * W;
  for (int64_t first = 0; first < count; first += fitting) {
    const int64_t piece = count - first < fitting ? count - first : fitting;
    int taken = 0;
    while (taken < num_inputs) {
      int listed_inputs = 0;
      if (taken > 0) listed.at[listed_inputs++] = partial;
      while (listed_inputs < kMostInputs && taken < num_inputs)
        listed.at[listed_inputs++] = inputs[taken++] + first;
      LaunchSum(taken == num_inputs ? out + first : partial, listed, listed_inputs, piece);
    }
  }
}

}  // namespace

void FillOptimizer(Kernels* table) {
  table->adamw = AdamW;
  table->sum_of_squares = SumOfSquares;
  table->sum_in_order = SumInOrder;
}

}  // namespace trainctl::kernels::cuda
