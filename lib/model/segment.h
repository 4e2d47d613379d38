// A block as a table of operators: what the executor runs and the simulator prices.
//
// A segment is a small program over values (activations). Its forward runs the operators in order;
// its backward runs their derivatives in reverse. Which value is saved, when a value dies and what
// is temporary are decided here, once; lib/nn interprets the table with tensors, Analyze() with
// byte counts, and a test holds the two together. A new architecture is a new table, not a new
// class. Pure data; thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "model/model_spec.h"

namespace trainctl::model {

enum class OpKind : uint8_t {
  kEmbedding,           // (token ids) -> [n, hidden]
  kRmsNorm,             // [n, hidden] -> [n, hidden], rstd [n]
  kLinear,              // [n, in] -> [n, out]; several adjacent weights count as one
  kRope,                // [n, (heads + 2 kv_heads) head_dim], in place: rotates q and k
  kAttention,           // [n, (heads + 2 kv_heads) head_dim] -> [n, heads head_dim], lse [heads, n]
  kSwiGlu,              // [n, 2 ffn] -> [n, ffn]
  kAdd,                 // residual; in place of its second input
  kLinearCrossEntropy,  // [n, hidden] -> loss; its gradient is formed together with it
};
inline constexpr int kNumOpKinds = 8;
absl::string_view OpKindName(OpKind kind);  // "linear"

// Where the gradient of an operator's first input goes. A gradient that already exists (a residual
// stream) is always added to, in place when nothing else refers to it.
enum class InputGradient : uint8_t {
  kNone,                 // no differentiable input
  kNew,                  // new storage
  kReuseOutputGradient,  // written over the gradient of the output
  kReuseSavedInput,      // written over the saved input, which dies here
};

// Rows of a micro-batch: n = batch * seq_len.
struct MicroBatchShape {
  int64_t batch = 1;
  int64_t seq_len = 1;
  int64_t tokens() const { return batch * seq_len; }
  bool operator==(const MicroBatchShape&) const = default;
};

struct Value {
  std::string name;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t bytes() const { return rows * cols * DTypeBytes(dtype); }
};

struct Operator {
  OpKind kind = OpKind::kAdd;
  std::vector<int> inputs;   // value ids
  std::vector<int> outputs;  // value ids
  std::vector<int> weights;  // inventory indices, adjacent in their bucket
  std::vector<int> biases;   // inventory indices, adjacent in their bucket
  std::vector<int> saved;    // value ids that its backward reads
  int in_place_of = -1;      // value id whose storage outputs[0] takes over
  InputGradient input_gradient = InputGradient::kNew;
  int64_t forward_temp_bytes = 0;
  int64_t backward_temp_bytes = 0;
};

struct Segment {
  int block = 0;
  MicroBatchShape shape;
  DType dtype = DType::kF32;  // of activations
  int64_t threads = 1;
  bool on_device = false;
  std::vector<Value> values;
  std::vector<Operator> operators;
  int input = -1;   // value id; -1 for the embedding
  int output = -1;  // value id; -1 for the head
};

struct SegmentOptions {
  MicroBatchShape shape;
  DType dtype = DType::kF32;  // kF32 or kBF16
  int64_t threads = 1;        // of one worker; scales the CPU attention kernel's workspace
  bool on_device = false;     // a device's kernels run it, which need other temporaries
};

// The table of `block`. `inventory` is Inventory(spec).
Segment BuildSegment(const ModelSpec& spec, const std::vector<Parameter>& inventory, int block,
                     const SegmentOptions& options);

// Whether a device runs attention as one fused kernel over packed documents (LibTorch's flash attention);
// otherwise it forms scores tile by tile, of at most kScoreTileBytes in fp32.
bool FlashServes(DType dtype, int64_t head_dim);
inline constexpr int64_t kScoreTileBytes = int64_t{16} << 20;

// Scores that the CPU's attention kernel (ATen's _scaled_dot_product_flash_attention_for_cpu) computes at
// once, of one head and sequence. A tile always reaches over all of its keys, so that a causal mask saves
// whole tiles only: up to 512 tokens nothing.
struct AttentionTiles {
  int64_t queries = 0, keys = 0;
};
AttentionTiles AttentionTilesOf(int64_t seq_len);
// Of one head and sequence, all tiles together.
int64_t ScoresComputed(int64_t seq_len);

// Rows of logits that the head computes at once: it bounds the logits' memory, not the result.
int64_t LogitRowsAtOnce(const MicroBatchShape& shape, int64_t vocab, DType dtype);

// When storage may be dropped. Index = operator; entries are storage roots.
struct Lifetimes {
  std::vector<std::vector<int>> forward_drops;    // after this operator's forward, saving for backward
  std::vector<std::vector<int>> inference_drops;  // the same, nothing saved
  std::vector<std::vector<int>> backward_drops;   // saved values, after this operator's backward
  std::vector<int> saved;                         // distinct, input of the segment excluded
};
Lifetimes ComputeLifetimes(const Segment& segment);

// For each value, the value whose storage it uses (itself, or what in_place_of leads to).
std::vector<int> StorageRoots(const Segment& segment);

// Bytes relative to what lives before the segment starts (its input or output gradient excluded).
struct SegmentMemory {
  int64_t output_bytes = 0;          // the boundary value handed on
  int64_t saved_bytes = 0;           // kept from forward to backward, input excluded
  int64_t forward_peak = 0;          // saving; output and saved included
  int64_t inference_peak = 0;        // not saving
  int64_t backward_peak = 0;         // above (saved + output gradient), input gradient included
  int64_t input_gradient_bytes = 0;  // bytes the input gradient adds (0 if it reuses the output's)
  int64_t loss_peak = 0;             // head only: forward and backward together
  // Where the weight gradients are formed apart, after the input's.
  int64_t input_backward_peak = 0;   // above (saved + output gradient)
  int64_t queued_bytes = 0;          // that live between the two
  int64_t weight_backward_peak = 0;  // above the queued
};
SegmentMemory Analyze(const Segment& segment);

}  // namespace trainctl::model
