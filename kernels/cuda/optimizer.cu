// What the optimizer and the reductions of gradients use, in fp32, also where masters are bf16: updates,
// sum_of_squares, clip_factor, sum_in_order.

#include <array>
#include <cmath>
#include <utility>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

// Elements a thread works on at a time: a unit of fp32, half a unit of bf16.
constexpr int W = kWidth<float>;

// ---- kernels ------------------------------------------------------------------------------------

#define TRAINCTL_RULE __device__
#define TRAINCTL_MUL_ADD(a, b, c) fmaf(a, b, c)
#define TRAINCTL_ADD_MUL(c, a, b) fmaf(a, b, c)
#include "kernels/update_rules.inc.h"
#undef TRAINCTL_ADD_MUL
#undef TRAINCTL_MUL_ADD
#undef TRAINCTL_RULE

// The ranges of one launch, cut into pieces that blocks take in turn: which blocks come to work on a range
// has no part in what becomes of its elements.
constexpr int kMostRanges = 128;
struct Pieces {
  int num_ranges;
  int64_t first_piece[kMostRanges + 1];  // of each range; then the total

  __device__ int RangeOf(int64_t piece) const {
    int low = 0, high = num_ranges;  // the range is among [low, high)
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_piece[middle] <= piece ? low : high) = middle;
    }
    return low;
  }
};

template <typename Rule, typename Master>
struct Updates {
  struct Range {
    Master* master;
    float* states[Rule::kNumStates];
    const float* gradient;
    BF16* copy;
    int64_t count;
    uint64_t number;
    bool decays;
    bool is_aligned;
  };
  Range ranges[kMostRanges];
  Pieces pieces;
};

constexpr int64_t kElementsOfAPiece = 4 * kFlatThreads * W;

// The rule on element i of states and gradient.
template <typename Rule, size_t... kStates>
__device__ void Apply(const Rule& rule, int i, float& master, float gradient, float factor,
                      float (&state)[Rule::kNumStates][W], std::index_sequence<kStates...>) {
  rule(master, gradient, factor, state[kStates][i]...);
}

// What an update leaves: masters of fp32, with a copy in bf16 if there is one.
template <bool kAligned>
__device__ void Store(float* master, BF16* copy, int64_t at, int64_t left, const float (&values)[W], uint32_t,
                      uint64_t) {
  StoreFloats<kAligned>(master + at, left, values);
  if (copy != nullptr) StoreFloats<kAligned>(copy + at, left, values);
}
// A master in bf16 is its own copy.
template <bool kAligned>
__device__ void Store(BF16* master, BF16*, int64_t at, int64_t left, const float (&values)[W], uint32_t key,
                      uint64_t number) {
  HalfUnit half = {{0, 0}};
  TRAINCTL_UNROLL
  for (int i = 0; i < W; ++i) {
    const uint32_t chance = RoundingBits(key, number + static_cast<uint64_t>(at + i));
    half.word[i / 2] |= RoundByChance(__float_as_uint(values[i]), chance) << (16 * (i % 2));
  }
  StoreHalf<kAligned>(master + at, half, left);
}

template <bool kAligned, typename Rule, typename Range>
__device__ void UpdatePiece(const Rule& rule, const Range& range, int64_t begin, int64_t end, float factor,
                            uint32_t rounding_key) {
  for (int64_t at = begin + int64_t{threadIdx.x} * W; at < end; at += int64_t{kFlatThreads} * W) {
    const int64_t left = end - at;
    float weight[W], g[W], state[Rule::kNumStates][W];
    LoadFloats<kAligned>(range.master + at, left, weight);
    LoadFloats<kAligned>(range.gradient + at, left, g);
    TRAINCTL_UNROLL
    for (int k = 0; k < Rule::kNumStates; ++k) LoadFloats<kAligned>(range.states[k] + at, left, state[k]);
    TRAINCTL_UNROLL
    for (int i = 0; i < W; ++i)
      Apply(rule, i, weight[i], g[i], factor, state, std::make_index_sequence<Rule::kNumStates>());
    TRAINCTL_UNROLL
    for (int k = 0; k < Rule::kNumStates; ++k) StoreFloats<kAligned>(range.states[k] + at, left, state[k]);
    Store<kAligned>(range.master, range.copy, at, left, weight, rounding_key, range.number);
  }
}

template <typename Rule, typename Master>
__global__ void __launch_bounds__(kFlatThreads)
    UpdateKernel(const __grid_constant__ Updates<Rule, Master> updates,
                 const UpdateOptions* __restrict__ options) {
  const float factor = options->factor;
  if (std::isnan(factor)) return;
  const int64_t num_pieces = updates.pieces.first_piece[updates.pieces.num_ranges];
  for (int64_t piece = blockIdx.x; piece < num_pieces; piece += gridDim.x) {
    const int r = updates.pieces.RangeOf(piece);
    const typename Updates<Rule, Master>::Range& range = updates.ranges[r];
    const Rule rule(*options, range.decays);
    const int64_t begin = (piece - updates.pieces.first_piece[r]) * kElementsOfAPiece;
    const int64_t end = begin + kElementsOfAPiece < range.count ? begin + kElementsOfAPiece : range.count;
    if (range.is_aligned) {
      UpdatePiece<true>(rule, range, begin, end, factor, options->rounding_key);
    } else {
      UpdatePiece<false>(rule, range, begin, end, factor, options->rounding_key);
    }
  }
}

struct Squares {
  struct Range {
    const float* x;
    int64_t count;
    bool is_aligned;
  };
  Range ranges[kMostRanges];
  Pieces pieces;
};

// How many blocks share a sum of squares is a matter of the ranges alone, so that devices agree.
constexpr int64_t kMostSquareBlocks = 1024;

template <bool kAligned>
__device__ double SquaresOfPiece(const float* x, int64_t begin, int64_t end, double sum) {
  for (int64_t at = begin + int64_t{threadIdx.x} * W; at < end; at += int64_t{kFlatThreads} * W) {
    float values[W];
    LoadFloats<kAligned>(x + at, end - at, values);
    TRAINCTL_UNROLL
    for (int i = 0; i < W; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

template <typename Unused>
__global__ void __launch_bounds__(kFlatThreads)
    SumOfSquaresKernel(double* __restrict__ block_sums, const __grid_constant__ Squares squares) {
  const int64_t num_pieces = squares.pieces.first_piece[squares.pieces.num_ranges];
  double sum = 0;
  for (int64_t piece = blockIdx.x; piece < num_pieces; piece += gridDim.x) {
    const int r = squares.pieces.RangeOf(piece);
    const Squares::Range& range = squares.ranges[r];
    const int64_t begin = (piece - squares.pieces.first_piece[r]) * kElementsOfAPiece;
    const int64_t end = begin + kElementsOfAPiece < range.count ? begin + kElementsOfAPiece : range.count;
    sum = range.is_aligned ? SquaresOfPiece<true>(range.x, begin, end, sum)
                           : SquaresOfPiece<false>(range.x, begin, end, sum);
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

// One thread.
template <typename Unused>
__global__ void __launch_bounds__(kWarp)
    ClipFactorKernel(float* __restrict__ factor, const double* __restrict__ loss,
                     const double* __restrict__ squares, double clip_norm) {
  if (threadIdx.x == 0) *factor = ClipFactor(*loss, *squares, clip_norm);
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

// Fills `pieces` with the first ranges of a list, as many as a launch takes; returns how many it took. Calls
// add(range, its place) for each.
template <typename Add>
int TakeRanges(const UpdateRange* ranges, int num_ranges, Pieces* pieces, const Add& add) {
  int taken = 0, listed = 0;
  int64_t num_pieces = 0;
  for (; taken < num_ranges && listed < kMostRanges; ++taken) {
    if (ranges[taken].count <= 0) continue;
    pieces->first_piece[listed] = num_pieces;
    num_pieces += CeilDiv(ranges[taken].count, kElementsOfAPiece);
    add(ranges[taken], listed++);
  }
  pieces->num_ranges = listed;
  pieces->first_piece[listed] = num_pieces;
  return taken;
}

template <typename Rule, typename Master>
void UpdateAll(const UpdateRange* ranges, int num_ranges, const UpdateOptions* options) {
  for (int taken = 0; taken < num_ranges;) {
    Updates<Rule, Master> updates = {};
    taken += TakeRanges(ranges + taken, num_ranges - taken, &updates.pieces,
                        [&](const UpdateRange& range, int place) {
                          typename Updates<Rule, Master>::Range& listed = updates.ranges[place];
                          listed.master = static_cast<Master*>(range.master);
                          listed.gradient = static_cast<const float*>(range.gradient);
                          listed.copy = static_cast<BF16*>(range.copy);
                          listed.count = range.count;
                          listed.number = range.number;
                          listed.decays = range.decays;
                          listed.is_aligned = AreAligned(range.master, range.gradient, range.copy);
                          for (int k = 0; k < Rule::kNumStates; ++k) {
                            listed.states[k] = static_cast<float*>(range.states[k]);
                            listed.is_aligned = listed.is_aligned && IsAligned(range.states[k]);
                          }
                        });
    const int64_t num_pieces = updates.pieces.first_piece[updates.pieces.num_ranges];
    if (num_pieces == 0) return;
    Launch("update", UpdateKernel<Rule, Master>, FlatShape(num_pieces * kFlatThreads), updates, options);
  }
}

template <typename Rule>
struct Update {
  static void Run(const UpdateRange* ranges, int num_ranges, const UpdateOptions* options) {
    UpdateAll<Rule, float>(ranges, num_ranges, options);
  }
};

template <typename Rule>
struct UpdateByChance {
  static void Run(const UpdateRange* ranges, int num_ranges, const UpdateOptions* options) {
    UpdateAll<Rule, BF16>(ranges, num_ranges, options);
  }
};

void SumOfSquares(double* sum, const UpdateRange* ranges, int num_ranges) {
  for (int taken = 0; taken < num_ranges;) {
    Squares squares = {};
    taken += TakeRanges(ranges + taken, num_ranges - taken, &squares.pieces,
                        [&](const UpdateRange& range, int place) {
                          squares.ranges[place] = {static_cast<const float*>(range.gradient), range.count,
                                                   IsAligned(range.gradient)};
                        });
    const int64_t num_pieces = squares.pieces.first_piece[squares.pieces.num_ranges];
    if (num_pieces == 0) return;
    const Workspace workspace;
    double* block_sums = static_cast<double*>(workspace.data());
    const int64_t blocks = Clamp(num_pieces, 1, kMostSquareBlocks);
    Launch("sum_of_squares", SumOfSquaresKernel<void>, {.blocks_x = blocks, .threads = kFlatThreads},
           block_sums, squares);
    Launch("sum_of_squares", AddBlockSumsKernel<void>, {.threads = kFlatThreads}, sum, block_sums, blocks);
  }
}

void SetClipFactor(float* factor, const double* loss, const double* squares, double clip_norm) {
  Launch("clip_factor", ClipFactorKernel<void>, {.threads = kWarp}, factor, loss, squares, clip_norm);
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
  table->masters_f32 = {
      .update = AllUpdates<Update, float>(), .sum_of_squares = SumOfSquares, .clip_factor = SetClipFactor};
  table->masters_bf16 = table->masters_f32;
  table->masters_bf16.update = AllUpdates<UpdateByChance, float>();
  table->sum_in_order = SumInOrder;
}

}  // namespace trainctl::kernels::cuda
