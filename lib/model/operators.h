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
  kAttention,           // [n, (heads + 2 kv_heads) head_dim] -> [n, heads head_dim], lse [heads, n]; its
                        // gradient is of q and k before they were rotated
  kSwiGlu,              // [n, 2 ffn] -> [n, ffn]
  kAdd,                 // residual; in place of its second input
  kLinearCrossEntropy,  // [n, hidden] -> loss; its gradient is formed together with it
  kBias,                // in place: of a sum over ranks, which would add it as often
  kTensorExchange,      // between the ranks of tensor parallelism
};
inline constexpr int kNumOpKinds = 10;

// Sizes of one operator. Whoever runs or prices it reads these, never the model's: half of the heads are the
// same operator with smaller numbers.
struct EmbeddingAttributes {
  int64_t vocab = 0;  // rows of the table
  int64_t hidden = 0;
  int64_t first = 0;  // token of its first row; rows of tokens elsewhere are zeros
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
  size_t angle_table = 0;  // by which queries and keys are rotated
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
  int64_t first = 0;         // token of its first row; the other rows are those of other ranks
};
// Of a row, of each rank: the largest logit, the sum of exponentials below it, the target's logit.
inline constexpr int64_t kLossStatistics = 3;
struct BiasAttributes {
  int64_t hidden = 0;
};
// What becomes of the rows of all ranks; the gradient goes the other way.
enum class TensorExchange : uint8_t {
  kGatherRows,    // each has some: all of them. Gradients are summed, and each rank has its rows' sums
  kScatterSums,   // each has a part of every sum: the sums of its rows. Gradients are gathered
  kSumParts,      // the same: all sums. The gradient is already that of every rank
  kSumGradients,  // all have the same, which stays. Gradients are summed
};
struct TensorExchangeAttributes {
  int64_t hidden = 0;
  TensorExchange way = TensorExchange::kGatherRows;
};
// In the order of OpKind.
using OperatorAttributes =
    std::variant<EmbeddingAttributes, RmsNormAttributes, LinearAttributes, RopeAttributes,
                 AttentionAttributes, SwiGluAttributes, AddAttributes, LinearCrossEntropyAttributes,
                 BiasAttributes, TensorExchangeAttributes>;
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
    kAttentionOperator, kSwiGluOperator, kAddOperator, kLinearCrossEntropyOperator, kBiasOperator,
    kTensorExchangeOperator;
// In the order of OpKind.
inline constexpr const OperatorEntry* kOperators[kNumOpKinds] = {
    &kEmbeddingOperator, &kRmsNormOperator,       &kLinearOperator, &kRopeOperator,
    &kAttentionOperator, &kSwiGluOperator,        &kAddOperator,    &kLinearCrossEntropyOperator,
    &kBiasOperator,      &kTensorExchangeOperator};

inline const OperatorEntry& EntryOf(OpKind kind) { return *kOperators[static_cast<size_t>(kind)]; }
inline absl::string_view OpKindName(OpKind kind) { return EntryOf(kind).name; }

// Both gradients of an operator; nothing for one whose gradients come with its forward.
Work BackwardWork(const Segment& segment, const Operator& op, bool accumulate);

// Whether a device runs attention as one fused kernel over packed documents (LibTorch's flash attention);
// otherwise it forms scores tile by tile, of at most kScoreTileBytes in fp32.
bool FlashServes(DType dtype, int64_t head_dim);
inline constexpr int64_t kScoreTileBytes = int64_t{16} << 20;

// Scores that the CPU's attention kernel computes, of one head and sequence: a strip of queries at a time,
// with whole vectors of the keys that its last one sees.
int64_t ScoresComputed(int64_t seq_len);
// Into how many parts it cuts the queries of each of `num_heads` heads of keys and values, over all
// documents, so that no thread waits long for another one. Not in the backward, where a head's keys are
// summed in order.
int64_t AttentionCuts(int64_t num_heads, int64_t threads);

// Bytes that one piece of a sum over CPUs moves at a time, per peer: it bounds what the sum needs beside its
// result.
inline constexpr int64_t kSumPieceBytes = int64_t{4} << 20;
// What a rank receives into, of a sum of so many elements: a piece of its share from each peer.
int64_t SumScratchBytes(int64_t numel, int64_t element_bytes, int64_t ranks);

// Rows of logits that the head computes at once: it bounds the logits' memory, not the result.
int64_t LogitRowsAtOnce(const MicroBatchShape& shape, int64_t vocab, DType dtype, bool on_device);

}  // namespace trainctl::model
