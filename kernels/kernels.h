// Fused operators of the trainer: a table of functions over raw memory. The CPU table is chosen by
// the instruction set found at run time; a GPU brings its own (device_api.h). No LibTorch here.
//
// Shapes: n rows (tokens), h columns (hidden). Memory rule: activations are written (=), gradients
// of parameters and sums are added to (+=) unless the name says otherwise. Accumulators (AccumulatorOf) are
// fp32, of fp64 elements fp64: those inside of every kernel, and those behind void* that are called so below.
// All pointers are memory of the table's device of at least
// the stated extent; row-major, no overlap unless stated. Deterministic: the same call gives the same
// bits. On the CPU a call uses one thread and has ended when it returns; on a GPU it is launched on the
// calling thread's current stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/dtype_id.h"
#include "kernels/attention.h"

namespace trainctl::kernels {

// For one element type T (fp32, bf16 or fp64), behind void*. fp64 proves gradients: it is there on the CPU
// alone, where it has no attention.
struct TypedKernels {
  // out[i] = table[tokens[i]]; rows of h elements.
  void (*embedding)(void* out, const void* table, const int32_t* tokens, int64_t n, int64_t h);
  // gradient[tokens[i]] += dout[i]; accumulators.
  void (*embedding_backward)(void* gradient, const void* dout, const int32_t* tokens, int64_t n, int64_t h);
  // y = x * rstd * w, rstd[i] = 1 / sqrt(mean(x_i^2) + eps) (Zhang & Sennrich 2019), an accumulator
  void (*rms_norm)(void* y, void* rstd, const void* x, const void* w, float eps, int64_t n, int64_t h);
  // sum += x, then y and rstd as rms_norm makes them of sum.
  void (*add_rms_norm)(void* sum, void* y, void* rstd, const void* x, const void* w, float eps, int64_t n,
                       int64_t h);
  // dx = (accumulate ? dx : 0) + ...; dx may be dy's storage when not accumulating. dw [h]: accumulators.
  void (*rms_norm_backward)(void* dx, void* dw, const void* dy, const void* x, const void* rstd,
                            const void* w, bool accumulate, int64_t n, int64_t h);
  // In place on the first `heads` heads of each row of x [n, row_stride]: pairs (i, i + d/2) turn by
  // the angle of positions[row]; sign -1 turns back. cos and sin are [max_position, d/2].
  void (*rope)(void* x, const int32_t* positions, const float* cos, const float* sin, float sign, int64_t n,
               int64_t heads, int64_t d, int64_t row_stride);
  // out [n, (heads + 2 kv_heads) d] = dq [n, heads d], dk and dv [n, kv_heads d] side by side, the heads of
  // dq and dk turned back as rope turns them with sign -1. d is even.
  void (*join_heads)(void* out, const void* dq, const void* dk, const void* dv, const int32_t* positions,
                     const float* cos, const float* sin, int64_t n, int64_t heads, int64_t kv_heads,
                     int64_t d);
  // out [n, f] = silu(gate_up[:, :f]) * gate_up[:, f:]
  void (*swiglu)(void* out, const void* gate_up, int64_t n, int64_t f);
  // dgate_up may be gate_up's storage.
  void (*swiglu_backward)(void* dgate_up, const void* dout, const void* gate_up, int64_t n, int64_t f);
  void (*add)(void* y, const void* x, int64_t count);                    // y += x
  void (*add_bias)(void* y, const void* bias, int64_t n, int64_t cols);  // y[i] += bias
  // Accumulators: gradient, sum, out of assign, x of round.
  void (*bias_gradient)(void* gradient, const void* dy, int64_t n, int64_t cols);
  void (*accumulate)(void* sum, const void* x, int64_t count);  // sum += x
  void (*assign)(void* out, const void* x, int64_t count);      // out = x
  void (*round)(void* out, const void* x, int64_t count);       // out = x, to nearest even
  // Softmax cross-entropy over rows of logits [n, vocab]; rows with mask 0 count nothing. Adds to
  // *loss the sum of (lse - logit[target]) + z_loss * lse^2. Unless `scale` is null the logits become their
  // gradient times *scale; the gradient of a masked row is 0.
  void (*cross_entropy)(double* loss, void* logits, const int32_t* targets, const uint8_t* mask, float z_loss,
                        const float* scale, int64_t n, int64_t vocab);
  // Null on a GPU and for fp64. Queries [first_query, first_query + num_queries) of each head, which begin at
  // a multiple of kAttentionQueries and end at one or with the tokens. Writes out, of the strides of `heads`,
  // and lse, the log of each row's sum of exponentials. `workspace`: AttentionWorkspace of the tokens or of
  // more.
  void (*attention)(const AttentionHeads& heads, void* out, float* lse, int64_t first_query,
                    int64_t num_queries, float* workspace);
  // Of all queries: `out` and `lse` are the forward's.
  void (*attention_backward)(const AttentionHeads& heads, const void* out, const float* lse,
                             const AttentionGradients& gradients, float* workspace);
};

// How an optimizer changes an element (update_rules.inc.h).
enum class UpdateRule : uint8_t { kAdamW, kLion, kSgd };
inline constexpr int kNumUpdateRules = 3;
inline constexpr int kMaxUpdateStates = 2;

// Each rule takes what it needs of it. Whatever changes from step to step is here, in the device's memory.
struct UpdateOptions {
  float lr = 0;
  float beta1 = 0;
  float beta2 = 0;
  float eps = 0;
  float momentum = 0;
  float weight_decay = 0;
  float factor = 1;            // of gradients; not a number: nothing is touched
  float bias_correction1 = 1;  // 1 - beta1^t
  float bias_correction2 = 1;  // 1 - beta2^t
  uint32_t rounding_key = 0;   // of this update's roundings to a bf16 master
};

// Consecutive elements of each array that an update treats alike.
struct UpdateRange {
  void* master = nullptr;
  std::array<void*, kMaxUpdateStates> states = {};  // null beyond those that the rule keeps
  const void* gradient = nullptr;
  void* copy = nullptr;  // bf16, what TypedKernels::round makes of the updated master; null: none
  int64_t count = 0;
  uint64_t number = 0;  // of the first element, for its rounding to a bf16 master; then one by one
  bool decays = false;  // by UpdateOptions::weight_decay
};

// The list of ranges itself is host memory; either all of them have a copy or none has.
using UpdateFunction = void (*)(const UpdateRange* ranges, int num_ranges, const UpdateOptions* options);

// For parameters as they are updated, behind void*. Gradients and state are accumulators of the masters'
// type.
struct MasterKernels {
  std::array<UpdateFunction, kNumUpdateRules> update;  // by UpdateRule
  // *sum += x . x of the gradient of each range, in fp64. Of the ranges it reads nothing else.
  void (*sum_of_squares)(double* sum, const UpdateRange* ranges, int num_ranges);
  // *factor = what makes a norm of sqrt(*squares) one of at most clip_norm, and not a number where *loss or
  // *squares is not finite. clip_norm 0: 1.
  void (*clip_factor)(float* factor, const double* loss, const double* squares, double clip_norm);

  UpdateFunction For(UpdateRule rule) const { return update[static_cast<size_t>(rule)]; }
};

struct Kernels {
  const char* name;  // "avx512", "avx2", "baseline", "cuda"
  TypedKernels f32;
  TypedKernels bf16;
  TypedKernels f64;  // null on a GPU
  MasterKernels masters_f32;
  // There is no fp32 master: an updated parameter is rounded up or down by chance, so that on average it is
  // what it would be in fp32 (Zamirai et al. 2020, arXiv 2010.06192). Chance is a function of UpdateOptions'
  // rounding_key and the element's number.
  MasterKernels masters_bf16;
  MasterKernels masters_f64;  // null on a GPU
  // out[i] = inputs[0][i] + inputs[1][i] + ... in that order; out may be one of the inputs. The list of
  // inputs itself is host memory.
  void (*sum_in_order)(float* out, const float* const* inputs, int num_inputs, int64_t count);

  const TypedKernels& For(DType dtype) const {
    return dtype == DType::kF64 ? f64 : dtype == DType::kBF16 ? bf16 : f32;
  }
  const MasterKernels& Masters(DType dtype) const {
    return dtype == DType::kF64 ? masters_f64 : dtype == DType::kBF16 ? masters_bf16 : masters_f32;
  }
};

// The fastest table that this processor runs.
const Kernels& Cpu();
// As far as oneDNN, LibTorch's library for products, asks for it.
bool HasAvx512();
// All that this processor runs, slowest first: tests compare them.
int NumCpuTables();
const Kernels& CpuTable(int index);

}  // namespace trainctl::kernels
