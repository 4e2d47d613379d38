// The trainer's fused operators: a table of functions over raw memory. The CPU table is chosen at run time by
// the processor's instruction set. A GPU plugin has its own table (device_api.h). No LibTorch.
//
//   const TypedKernels& kernels = Cpu().For(DType::kBF16);
//   kernels.rms_norm(y, rstd, x, w, Gain::kWeight, 1e-5f, n, h);
//
// Shapes: n rows (tokens) and h columns (hidden), row-major. Memory: activations are written (=); gradients
// of parameters and sums are added to (+=), unless the name says otherwise. All pointers refer to memory of
// the table's device and must have at least the stated extent, which the kernels do not check. They do not
// overlap unless stated.
//
// Accumulators (AccumulatorOf) are fp64 for fp64 elements and fp32 otherwise. This is the type of all sums
// inside the kernels, and of the void* arguments that are called accumulators below.
//
// Deterministic: the same call gives the same bits. On the CPU a call runs on the calling thread and is
// complete when it returns. On a GPU it is launched on the calling thread's current stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/dtype_id.h"
#include "kernels/attention.h"
#include "kernels/update.h"
#include "kernels/variants.h"

namespace trainctl::kernels {

// The kernels for one element type T: fp32, bf16 or fp64. void* points to elements of T unless stated. fp64
// is for checking gradients: it exists only on the CPU, and without attention.
struct TypedKernels {
  // out[i] = table[tokens[i]]; rows of h elements.
  void (*embedding)(void* out, const void* table, const int32_t* tokens, int64_t n, int64_t h);
  // gradient[tokens[i]] += dout[i]; `gradient` holds accumulators.
  void (*embedding_backward)(void* gradient, const void* dout, const int32_t* tokens, int64_t n, int64_t h);
  // y = x * rstd * gain, with rstd[i] = 1 / sqrt(mean(x_i^2) + eps) (Zhang & Sennrich 2019). `rstd` [n] holds
  // accumulators.
  void (*rms_norm)(void* y, void* rstd, const void* x, const void* w, Gain gain, float eps, int64_t n,
                   int64_t h);
  // sum += x; then y and rstd are those of rms_norm for `sum`.
  void (*add_rms_norm)(void* sum, void* y, void* rstd, const void* x, const void* w, Gain gain, float eps,
                       int64_t n, int64_t h);
  // Writes the gradient of x to dx, or adds it to dx if `accumulate`. dx may be dy's storage if not
  // accumulating. dw [h] holds accumulators.
  void (*rms_norm_backward)(void* dx, void* dw, const void* dy, const void* x, const void* rstd,
                            const void* w, Gain gain, bool accumulate, int64_t n, int64_t h);
  // rms_norm of each of the first `heads` heads of every row. A head has d elements, and all heads share one
  // w [d]. rstd is [n, heads]. Rows of y are y_stride elements apart, rows of x x_stride. Not in place,
  // because the backward needs x. x cannot be computed from y, since w may contain zeros, and attention
  // overwrites or rotates y anyway.
  void (*rms_norm_heads)(void* y, void* rstd, const void* x, const void* w, Gain gain, float eps, int64_t n,
                         int64_t heads, int64_t d, int64_t y_stride, int64_t x_stride);
  // The gradient of rms_norm_heads. Rows of dx and dy are dy_stride elements apart; dx may be dy's storage.
  // dw [d] holds accumulators, summed over rows and heads.
  void (*rms_norm_heads_backward)(void* dx, void* dw, const void* dy, const void* x, const void* rstd,
                                  const void* w, Gain gain, int64_t n, int64_t heads, int64_t d,
                                  int64_t dy_stride, int64_t x_stride);
  // y = (x - mean) * rstd * gain + bias, with the mean of each row and rstd[i] = 1 / sqrt(mean((x_i -
  // mean_i)^2) + eps). `mean` and `rstd` [n] hold accumulators. `bias` may be null.
  void (*layer_norm)(void* y, void* mean, void* rstd, const void* x, const void* w, const void* bias,
                     Gain gain, float eps, int64_t n, int64_t h);
  // Like rms_norm_backward. dbias [h] holds accumulators too, and may be null.
  void (*layer_norm_backward)(void* dx, void* dw, void* dbias, const void* dy, const void* x,
                              const void* mean, const void* rstd, const void* w, Gain gain, bool accumulate,
                              int64_t n, int64_t h);
  // Applies rotary positions in place to the first `heads` heads of each row of x [n, row_stride]. Rotates
  // the pairs of the first `rotated` elements of each head, an even number, by the angle of positions[row].
  // `sign` is 1, or -1 to rotate back. cos and sin are [max_position, rotated / 2].
  void (*rope)(void* x, const int32_t* positions, const float* cos, const float* sin, float sign,
               RopePairs pairs, int64_t n, int64_t heads, int64_t d, int64_t rotated, int64_t row_stride);
  // out [n, (heads + 2 kv_heads) d] = dq [n, heads d], dk and dv [n, kv_heads d], concatenated by row. The
  // heads of dq and dk are rotated back, as rope does with sign -1, kHalves and rotated = d. d is even.
  void (*join_heads)(void* out, const void* dq, const void* dk, const void* dv, const int32_t* positions,
                     const float* cos, const float* sin, int64_t n, int64_t heads, int64_t kv_heads,
                     int64_t d);
  // out [n, f] = activation(gate_up[:, :f]) * gate_up[:, f:]. With kSiLU, this is SwiGLU.
  void (*gated_activation)(void* out, const void* gate_up, Activation activation, int64_t n, int64_t f);
  // The gradient of gate_up. dgate_up may be gate_up's storage.
  void (*gated_activation_backward)(void* dgate_up, const void* dout, const void* gate_up,
                                    Activation activation, int64_t n, int64_t f);
  // out[i] = activation(x[i]); out may be x's storage.
  void (*activation)(void* out, const void* x, Activation activation, int64_t count);
  // The gradient of x. dx may be the storage of x or dout.
  void (*activation_backward)(void* dx, const void* dout, const void* x, Activation activation,
                              int64_t count);
  // out = factor * x; out may be x's storage.
  void (*scale)(void* out, const void* x, float factor, int64_t count);
  void (*add)(void* y, const void* x, int64_t count);                    // y += x
  void (*add_bias)(void* y, const void* bias, int64_t n, int64_t cols);  // y[i] += bias
  // bias_gradient adds the sum of dy's rows to `gradient`. Accumulators: gradient, sum, the output of assign
  // and the input of round.
  void (*bias_gradient)(void* gradient, const void* dy, int64_t n, int64_t cols);
  void (*accumulate)(void* sum, const void* x, int64_t count);  // sum += x
  void (*assign)(void* out, const void* x, int64_t count);      // out = x
  void (*round)(void* out, const void* x, int64_t count);       // out = x, rounded to nearest even
  // Softmax cross-entropy over rows of logits [n, vocab]. Rows with mask 0 are ignored. Adds to *loss the sum
  // of (lse - logit[target]) + z_loss * lse^2, with the log lse of the sum of the row's exponentials. If cap
  // is not 0, each logit x is replaced by cap * tanh(x / cap) (Gemma), and its gradient is the one with
  // respect to x. If `scale` is not null, the logits become their gradient times *scale; the gradient of a
  // masked row is 0.
  void (*cross_entropy)(double* loss, void* logits, const int32_t* targets, const uint8_t* mask, float z_loss,
                        float cap, const float* scale, int64_t n, int64_t vocab);
  // Causal attention (attention.h); null on a GPU and for fp64. Computes queries [first_query, first_query +
  // num_queries) of each head. The range begins at a multiple of kAttentionQueries, and ends at one or at the
  // last token. Writes `out`, with the strides of `heads`, and `lse`, the log of each row's sum of
  // exponentials. `workspace` is at least AttentionWorkspace of the number of tokens.
  void (*attention)(const AttentionHeads& heads, void* out, float* lse, int64_t first_query,
                    int64_t num_queries, float* workspace);
  // The gradients of all queries, keys and values. `out` and `lse` are the forward's results.
  void (*attention_backward)(const AttentionHeads& heads, const void* out, const float* lse,
                             const AttentionGradients& gradients, float* workspace);
};

// The kernels that update parameters (masters) of one type. Gradients and optimizer state are accumulators of
// that type.
struct MasterKernels {
  std::array<UpdateFunction, kNumUpdateRules> update;  // indexed by UpdateRule
  // Adds the sum of squares of each range's gradient to *sum, in fp64. Reads only `gradient` and `count` of
  // the ranges.
  void (*sum_of_squares)(double* sum, const UpdateRange* ranges, int num_ranges);
  // Sets *factor to the factor that limits a gradient norm of sqrt(*squares) to clip_norm; 1 if the norm is
  // smaller, or if clip_norm is 0. Sets it to NaN if *loss or *squares is not finite.
  void (*clip_factor)(float* factor, const double* loss, const double* squares, double clip_norm);

  UpdateFunction For(UpdateRule rule) const { return update[static_cast<size_t>(rule)]; }
};

struct Kernels {
  const char* name;  // "avx512", "avx2", "baseline", "cuda"
  TypedKernels f32;
  TypedKernels bf16;
  TypedKernels f64;  // null on a GPU
  MasterKernels masters_f32;
  // Masters in bf16, without an fp32 master. An updated parameter is rounded up or down at random, so that
  // its expected value is the fp32 result (Zamirai et al. 2020, arXiv 2010.06192). The random bits are a
  // function of UpdateOptions::rounding_key and the element's number.
  MasterKernels masters_bf16;
  MasterKernels masters_f64;  // null on a GPU
  // out[i] = inputs[0][i] + inputs[1][i] + ..., added in that order. `out` may be one of the inputs. The
  // array `inputs` itself is in host memory.
  void (*sum_in_order)(float* out, const float* const* inputs, int num_inputs, int64_t count);

  const TypedKernels& For(DType dtype) const {
    return dtype == DType::kF64 ? f64 : dtype == DType::kBF16 ? bf16 : f32;
  }
  const MasterKernels& Masters(DType dtype) const {
    return dtype == DType::kF64 ? masters_f64 : dtype == DType::kBF16 ? masters_bf16 : masters_f32;
  }
};

// Returns the fastest table that this processor can run.
const Kernels& Cpu();
// Whether the processor has the AVX-512 extensions that oneDNN, LibTorch's matrix library, requires.
bool HasAvx512();
// All tables that this processor can run, slowest first, for tests that compare them.
int NumCpuTables();
const Kernels& CpuTable(int index);

}  // namespace trainctl::kernels
