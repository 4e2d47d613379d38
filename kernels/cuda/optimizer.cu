// What the optimizer and the reductions of gradients use, in fp32: updates, sum_of_squares, sum_in_order.

#include <array>
#include <cmath>
#include <utility>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int W = kWidth<float>;
constexpr int kWidthWithCopy = kWidth<BF16>;

// ---- kernels ------------------------------------------------------------------------------------

#define TRAINCTL_RULE __device__
#define TRAINCTL_MUL_ADD(a, b, c) fmaf(a, b, c)
#define TRAINCTL_ADD_MUL(c, a, b) fmaf(a, b, c)
#include "kernels/update_rules.inc.h"
#undef TRAINCTL_ADD_MUL
#undef TRAINCTL_MUL_ADD
#undef TRAINCTL_RULE

template <int kNumStates>
struct States {
  float* at[kNumStates];
};

// The rule on element i of each array.
template <typename Rule, int W, size_t... kStates>
__device__ void Apply(const Rule& rule, int i, float (&master)[W], const float (&gradient)[W],
                      float (&state)[Rule::kNumStates][W], std::index_sequence<kStates...>) {
  rule(master[i], gradient[i], state[kStates][i]...);
}

// The masters once more as bf16: with a copy a unit is one of bf16, without one of fp32.
template <bool kAligned>
__device__ void StoreCopy(BF16* copy, int64_t at, int64_t left, const float (&values)[kWidthWithCopy]) {
  StoreFloats<kAligned>(copy + at, left, values);
}
template <bool kAligned>
__device__ void StoreCopy(BF16*, int64_t, int64_t, const float (&)[kWidth<float>]) {}

template <typename Rule, int W, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads)
    UpdateKernel(float* __restrict__ master, States<Rule::kNumStates> states,
                 const float* __restrict__ gradient, BF16* __restrict__ copy, Rule rule, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x * W;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W; at < count; at += step) {
    const int64_t left = count - at;
    float weight[W], g[W], state[Rule::kNumStates][W];
    LoadFloats<kAligned>(gradient + at, left, g);
    TRAINCTL_UNROLL
    for (int k = 0; k < Rule::kNumStates; ++k) LoadFloats<kAligned>(states.at[k] + at, left, state[k]);
    LoadFloats<kAligned>(master + at, left, weight);
    TRAINCTL_UNROLL
    for (int i = 0; i < W; ++i)
      Apply(rule, i, weight, g, state, std::make_index_sequence<Rule::kNumStates>());
    TRAINCTL_UNROLL
    for (int k = 0; k < Rule::kNumStates; ++k) StoreFloats<kAligned>(states.at[k] + at, left, state[k]);
    StoreFloats<kAligned>(master + at, left, weight);
    StoreCopy<kAligned>(copy, at, left, weight);
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

template <typename Rule>
struct Update {
  static void Run(void* master, void* const* states, const void* gradient, void* copy,
                  const UpdateOptions& options, int64_t count) {
    if (copy != nullptr) {
      RunWith<kWidthWithCopy>(master, states, gradient, copy, options, count);
    } else {
      RunWith<W>(master, states, gradient, copy, options, count);
    }
  }

  template <int kUnit>
  static void RunWith(void* master, void* const* states, const void* gradient, void* copy,
                      const UpdateOptions& options, int64_t count) {
    if (count <= 0) return;
    States<Rule::kNumStates> listed;
    bool aligned = AreAligned(master, gradient) && IsAligned(copy);
    for (int k = 0; k < Rule::kNumStates; ++k) {
      listed.at[k] = static_cast<float*>(states[k]);
      aligned = aligned && IsAligned(states[k]);
    }
    Launch("update", aligned ? UpdateKernel<Rule, kUnit, true> : UpdateKernel<Rule, kUnit, false>,
           FlatShape(CeilDiv(count, kUnit)), static_cast<float*>(master), listed,
           static_cast<const float*>(gradient), static_cast<BF16*>(copy), Rule(options), count);
  }
};

void SumOfSquares(double* sum, const void* x, int64_t count) {
  if (count <= 0) return;
  const Workspace workspace;
  double* block_sums = static_cast<double*>(workspace.data());
  const int64_t blocks = Clamp(CeilDiv(count, int64_t{W} * kFlatThreads), 1, kMostSquareBlocks);
  Launch("sum_of_squares", AreAligned(x) ? SumOfSquaresKernel<true> : SumOfSquaresKernel<false>,
         {.blocks_x = blocks, .threads = kFlatThreads}, block_sums, static_cast<const float*>(x), count);
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
  table->masters_f32 = {.update = AllUpdates<Update, float>(), .sum_of_squares = SumOfSquares};
  table->sum_in_order = SumInOrder;
}

}  // namespace trainctl::kernels::cuda
