// The kinds of operators that segments are made of. What a kind does to shapes, memory and time is written in
// one file, operator_<kind>.cc; lib/nn/operator_<kind>.cc runs it. This header binds them in one table.
// Pure data; thread safe.
//
// A new kind: its row in OpKind, its attributes and its entry here, operator_<kind>.cc, and the twins of both
// in lib/nn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "base/dtype_id.h"
#include "model/work.h"

namespace trainctl::model {

struct MicroBatchShape;
struct Operator;
struct Segment;

// n: tokens of a micro-batch.
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

// Sizes of one operator. Whoever runs or prices it reads these, never the model's: half of the heads are the
// same operator with smaller numbers.
struct EmbeddingAttributes {
  int64_t vocab = 0;  // rows of the table
  int64_t hidden = 0;
};
struct RmsNormAttributes {
  int64_t hidden = 0;
  double eps = 0;
};
struct LinearAttributes {
  int64_t in = 0, out = 0;
};
struct RopeAttributes {
  int64_t rotated_heads = 0;  // the first of each row: queries and keys
  int64_t head_dim = 0;
  int64_t row = 0;         // elements, those that are not rotated among them
  size_t angle_table = 0;  // which of the runner's tables of angles
};
struct AttentionAttributes {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
};
struct SwiGluAttributes {
  int64_t ffn = 0;
};
struct AddAttributes {
  int64_t hidden = 0;
};
struct LinearCrossEntropyAttributes {
  int64_t hidden = 0;
  int64_t vocab = 0;         // rows of the matrix
  int64_t rows_at_once = 0;  // of logits
};
// In the order of OpKind.
using OperatorAttributes =
    std::variant<EmbeddingAttributes, RmsNormAttributes, LinearAttributes, RopeAttributes,
                 AttentionAttributes, SwiGluAttributes, AddAttributes, LinearCrossEntropyAttributes>;
static_assert(std::variant_size_v<OperatorAttributes> == kNumOpKinds);

// What a kind is, apart from tensors. Work is that of one operator of `segment`; attention's is that of one
// document per sequence: sequences packed from several need less.
struct OperatorEntry {
  absl::string_view name;  // "linear"
  // Given an operator's attributes, inputs, weights and biases: appends its outputs to segment.values, the
  // first under `name`, and fills in what Operator says of values, gradients and temporaries.
  void (*complete)(Segment& segment, Operator& op, const std::string& name);
  Work (*forward_work)(const Segment& segment, const Operator& op);
  // The input's gradient, and those of norms, biases and the embedding. accumulate: gradients of parameters
  // are added to what is there. Null: formed together with the forward.
  Work (*input_gradient_work)(const Segment& segment, const Operator& op, bool accumulate);
  // The gradient of its matrix. Null: it has none, or not apart from its input's.
  Work (*weight_gradient_work)(const Segment& segment, const Operator& op, bool accumulate);
  // Forward and gradients, where they are formed together (a loss); null elsewhere.
  Work (*loss_and_gradient_work)(const Segment& segment, const Operator& op);
};
extern const OperatorEntry kEmbeddingOperator, kRmsNormOperator, kLinearOperator, kRopeOperator,
    kAttentionOperator, kSwiGluOperator, kAddOperator, kLinearCrossEntropyOperator;
// In the order of OpKind.
inline constexpr const OperatorEntry* kOperators[kNumOpKinds] = {
    &kEmbeddingOperator, &kRmsNormOperator, &kLinearOperator, &kRopeOperator,
    &kAttentionOperator, &kSwiGluOperator,  &kAddOperator,    &kLinearCrossEntropyOperator};

inline const OperatorEntry& EntryOf(OpKind kind) { return *kOperators[static_cast<size_t>(kind)]; }
inline absl::string_view OpKindName(OpKind kind) { return EntryOf(kind).name; }

// Both gradients of an operator; nothing for one whose gradients come with its forward.
Work BackwardWork(const Segment& segment, const Operator& op, bool accumulate);

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
int64_t LogitRowsAtOnce(const MicroBatchShape& shape, int64_t vocab, DType dtype, bool on_device);

}  // namespace trainctl::model
