// The kinds of operators that a segment consists of. For each kind, operator_<kind>.cc defines shapes, memory
// and work, and lib/nn/operator_<kind>.cc executes it. This header lists all kinds in one table. Pure data;
// thread-safe.
//
// To add a kind, add it to OpKind, define its attributes and its OperatorEntry here and in
// operator_<kind>.cc, and add its runner in lib/nn (nn/operators.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/collective.h"
#include "base/dtype_id.h"
#include "kernels/variants.h"
#include "model/work.h"

namespace trainctl::model {

struct MicroBatchShape;
struct Operator;
struct Segment;

// In the shapes below, n is the number of tokens in a micro-batch.
enum class OpKind : uint8_t {
  kEmbedding,           // (token ids) -> [n, hidden]
  kRmsNorm,             // [n, hidden] -> [n, hidden], rstd [n]
  kLinear,              // [n, in] -> [n, out]; adjacent weights are used as a single matrix
  kRope,                // [n, (heads + 2 kv_heads) head_dim]; rotates q and k in place
  kAttention,           // [n, (heads + 2 kv_heads) head_dim] -> [n, heads head_dim], lse [heads, n]
  kSwiGlu,              // [n, 2 ffn] -> [n, ffn]; SwiGLU, or its variant with another activation
  kAdd,                 // residual addition; overwrites its second input
  kLinearCrossEntropy,  // [n, hidden] -> loss; computes its gradient together with the loss
  kBias,                // adds a bias in place, after a sum over ranks that would otherwise add it repeatedly
  kTensorExchange,      // collective between tensor-parallel ranks
  kLayerNorm,           // [n, hidden] -> [n, hidden], mean [n], rstd [n]
  kHeadNorm,            // [n, (heads + 2 kv_heads) head_dim]; RMSNorm of each head of q and k, in place
  kActivation,          // [n, cols] -> [n, cols]
  kScale,               // [n, cols]; multiplies by a constant, in place
  kPositions,           // [n, hidden]; adds the row of each token's position, in place
};
inline constexpr int kNumOpKinds = 15;

// Sizes of one operator. Execution and cost estimates use these sizes instead of the model's. A
// tensor-parallel rank runs the same operator with smaller sizes, such as half of the heads.
struct EmbeddingAttributes {
  int64_t vocab = 0;  // rows of this rank's part of the table
  int64_t hidden = 0;
  int64_t first = 0;  // token of the first row; the output is zero for tokens of other ranks
  bool operator==(const EmbeddingAttributes&) const = default;
};
struct RmsNormAttributes {
  int64_t hidden = 0;
  double eps = 0;
  kernels::Gain gain = kernels::Gain::kWeight;
  bool operator==(const RmsNormAttributes&) const = default;
};
struct LinearAttributes {
  int64_t in = 0, out = 0;
  bool operator==(const LinearAttributes&) const = default;
};
struct RopeAttributes {
  int64_t rotated_heads = 0;  // number of heads at the beginning of each row to rotate: queries and keys
  int64_t head_dim = 0;
  int64_t rotated_dim = 0;  // number of elements at the beginning of each head to rotate
  kernels::RopePairs pairs = kernels::RopePairs::kHalves;
  int64_t row = 0;         // elements per row, including those that are not rotated
  size_t angle_table = 0;  // index of the table of angles to use (Graph::angles)
  bool operator==(const RopeAttributes&) const = default;
};
struct AttentionAttributes {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double scale = 0;  // factor of the scores; 0 means 1 / sqrt(head_dim)
  // Number of keys that a query sees at most, including its own (Mistral 7B, arXiv 2310.06825). 0 means no
  // limit.
  int64_t window = 0;
  // If not 0, a scaled score s becomes softcap * tanh(s / softcap) (Gemma 2, arXiv 2408.00118).
  double softcap = 0;
  bool operator==(const AttentionAttributes&) const = default;
};
struct SwiGluAttributes {
  int64_t ffn = 0;
  kernels::Activation activation = kernels::Activation::kSiLU;
  bool operator==(const SwiGluAttributes&) const = default;
};
struct AddAttributes {
  int64_t hidden = 0;
  bool operator==(const AddAttributes&) const = default;
};
struct LinearCrossEntropyAttributes {
  int64_t hidden = 0;
  int64_t vocab = 0;         // rows of this rank's part of the matrix
  int64_t rows_at_once = 0;  // rows of logits computed at a time (see LogitRowsAtOnce)
  int64_t first = 0;         // token of the matrix's first row
  double softcap = 0;        // logits x become softcap * tanh(x / softcap); 0 for none
  bool operator==(const LinearCrossEntropyAttributes&) const = default;
};
// Number of values that each tensor-parallel rank contributes per row of logits: the maximum logit, the sum
// of exp(logit - maximum), and the target's logit.
inline constexpr int64_t kLossStatistics = 3;
struct BiasAttributes {
  int64_t hidden = 0;
  bool operator==(const BiasAttributes&) const = default;
};
// The collectives of an exchange in the forward and, for the gradient, in the backward.
enum class TensorExchange : uint8_t {
  kGatherRows,    // forward: all-gather of the ranks' rows; backward: reduce-scatter
  kScatterSums,   // forward: reduce-scatter of the ranks' partial sums; backward: all-gather
  kSumParts,      // forward: all-reduce of the ranks' partial sums; backward: none
  kSumGradients,  // forward: none, because all ranks have the same rows; backward: all-reduce
};
struct TensorExchangeAttributes {
  int64_t hidden = 0;
  TensorExchange way = TensorExchange::kGatherRows;
  bool operator==(const TensorExchangeAttributes&) const = default;
};
struct LayerNormAttributes {
  int64_t hidden = 0;
  double eps = 0;
  kernels::Gain gain = kernels::Gain::kWeight;
  bool operator==(const LayerNormAttributes&) const = default;
};
// The operator's weights are those of queries and of keys.
struct HeadNormAttributes {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double eps = 0;
  kernels::Gain gain = kernels::Gain::kWeight;
  // Whether there is one norm over all heads of queries, and one over all heads of keys, of all ranks. If
  // not, each head has its own norm, and all heads of queries (or of keys) share a weight.
  bool whole = false;
  bool operator==(const HeadNormAttributes&) const = default;
};
struct ActivationAttributes {
  int64_t cols = 0;
  kernels::Activation activation = kernels::Activation::kSiLU;
  bool operator==(const ActivationAttributes&) const = default;
};
struct ScaleAttributes {
  int64_t cols = 0;
  double factor = 1;
  bool operator==(const ScaleAttributes&) const = default;
};
struct PositionsAttributes {
  int64_t rows = 0;  // number of rows in the table
  int64_t hidden = 0;
  int64_t first = 0;  // row of position 0
  bool operator==(const PositionsAttributes&) const = default;
};
// The alternatives are in the order of OpKind.
using OperatorAttributes =
    std::variant<EmbeddingAttributes, RmsNormAttributes, LinearAttributes, RopeAttributes,
                 AttentionAttributes, SwiGluAttributes, AddAttributes, LinearCrossEntropyAttributes,
                 BiasAttributes, TensorExchangeAttributes, LayerNormAttributes, HeadNormAttributes,
                 ActivationAttributes, ScaleAttributes, PositionsAttributes>;
static_assert(std::variant_size_v<OperatorAttributes> == kNumOpKinds);

// The passes of an operator. Each pass over a block runs some of them (schedule/operator_passes.h).
enum class Pass : uint8_t {
  kForward,
  kInputGradient,    // gradients of the inputs, and of norms, biases and the embedding
  kWeightGradient,   // gradient of the matrix; may be postponed to a second pass over the block
  kLossAndGradient,  // a loss and all of its gradients
};
inline constexpr std::array<Pass, 4> kPasses = {Pass::kForward, Pass::kInputGradient, Pass::kWeightGradient,
                                                Pass::kLossAndGradient};
class PassSet {
 public:
  constexpr PassSet() = default;
  constexpr PassSet(std::initializer_list<Pass> passes) {
    for (const Pass pass : passes) Add(pass);
  }
  constexpr void Add(Pass pass) { bits_ = static_cast<uint8_t>(bits_ | Bit(pass)); }
  constexpr bool Has(Pass pass) const { return (bits_ & Bit(pass)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  bool operator==(const PassSet&) const = default;

 private:
  static constexpr uint8_t Bit(Pass pass) { return static_cast<uint8_t>(1U << static_cast<uint8_t>(pass)); }
  uint8_t bits_ = 0;
};

// A collective between tensor-parallel ranks that one pass of an operator issues.
struct OperatorExchange {
  // Part of the collective's name after the name of the block's pass: for example,
  // "attention_input_gathered".
  std::string name;
  Collective collective = Collective::kAllGather;
  double bytes = 0;  // as defined in cluster/collectives.h
  double count = 1;  // number of consecutive exchanges of this size; `name` belongs to the first
};

// A kind of operator without tensors: its values, memory, work and exchanges. In these functions, `segment`
// is the table that contains `op`. The work of attention assumes one document per sequence, and is less if
// sequences are packed from several documents.
struct OperatorEntry {
  absl::string_view name;  // for example, "linear"
  PassSet passes;          // passes that operators of this kind have
  // Completes an operator whose attributes, inputs, weights and biases are set. Appends its outputs to
  // segment.values (outputs[0] is called `name`), and sets the other fields of `op`: values, gradient rule
  // and temporaries.
  void (*complete)(Segment& segment, Operator& op, const std::string& name);
  // Returns the work of one of `passes`, excluding exchanges. `accumulate` is true if parameter gradients are
  // added to existing ones.
  Work (*work)(const Segment& segment, const Operator& op, Pass pass, bool accumulate);
  // Appends the exchanges of a pass in the order in which they are issued. Called only if segment.tensor has
  // more than one rank. Null if this kind never exchanges anything.
  void (*exchanges)(const Segment& segment, const Operator& op, Pass pass,
                    std::vector<OperatorExchange>& list) = nullptr;
};
extern const OperatorEntry kEmbeddingOperator, kRmsNormOperator, kLinearOperator, kRopeOperator,
    kAttentionOperator, kSwiGluOperator, kAddOperator, kLinearCrossEntropyOperator, kBiasOperator,
    kTensorExchangeOperator, kLayerNormOperator, kHeadNormOperator, kActivationOperator, kScaleOperator,
    kPositionsOperator;
// Indexed by OpKind.
inline constexpr const OperatorEntry* kOperators[kNumOpKinds] = {
    &kEmbeddingOperator,  &kRmsNormOperator,        &kLinearOperator,    &kRopeOperator,
    &kAttentionOperator,  &kSwiGluOperator,         &kAddOperator,       &kLinearCrossEntropyOperator,
    &kBiasOperator,       &kTensorExchangeOperator, &kLayerNormOperator, &kHeadNormOperator,
    &kActivationOperator, &kScaleOperator,          &kPositionsOperator};

inline const OperatorEntry& EntryOf(OpKind kind) { return *kOperators[static_cast<size_t>(kind)]; }
inline absl::string_view OpKindName(OpKind kind) { return EntryOf(kind).name; }

// Returns the exchanges of a pass in the order in which they are issued. Empty without tensor parallelism.
std::vector<OperatorExchange> ExchangesOf(const Segment& segment, const Operator& op, Pass pass);

// Returns the work of an operator, including exchanges. Ignores those of `passes` that its kind does not
// have.
Work WorkOf(const Segment& segment, const Operator& op, PassSet passes, bool accumulate);

// Names of exchanges, used by both the operator table and lib/nn. TensorExchangeName is for a kTensorExchange
// operator, LossExchangeName for the statistics of the logits that start at row `first_row`, and
// HeadNormExchangeName for the sums of a kHeadNorm operator.
std::string TensorExchangeName(const Segment& segment, const Operator& op, Pass pass);
std::string LossExchangeName(int64_t first_row);
std::string HeadNormExchangeName(const Segment& segment, const Operator& op, Pass pass);
// Number of sums that each tensor-parallel rank contributes per row to a kHeadNorm operator over all heads:
// one of queries, one of keys.
inline constexpr int64_t kHeadNormSums = 2;

// Returns whether a device runs attention as one fused kernel over packed documents (LibTorch's flash
// attention, which has no soft cap). Otherwise, the device computes fp32 scores in tiles of at most
// kScoreTileBytes.
bool SupportsFlashAttention(DType dtype, int64_t head_dim, double softcap);
// The same for one operator of a segment, which a CPU never runs so.
bool RunsFlashAttention(const Segment& segment, const AttentionAttributes& attention);
inline constexpr int64_t kScoreTileBytes = int64_t{16} << 20;

// Returns the number of keys that a query sees on average. `window` is that of AttentionAttributes.
double MeanVisibleKeys(double seq_len, double window);
// Returns the number of scores that the CPU attention kernel computes per head and sequence. The kernel
// processes a strip of queries at a time. For each strip, it computes the scores of all keys from the first
// that the first query sees to the last that the last query sees, in whole vectors.
int64_t ScoresComputed(int64_t seq_len, int64_t window);
// Returns the number of parts into which the CPU attention kernel splits the queries of each head, to balance
// the load of the threads. `num_heads` is the number of key-value heads in all documents together. Applies
// only to the forward. The backward does not split heads, because it sums the gradients of a head's keys in
// order.
int64_t AttentionCuts(int64_t num_heads, int64_t threads);

// Size, in bytes, of the pieces in which an all-reduce or reduce-scatter between CPU ranks receives data from
// each peer. Limits the scratch memory of the sum.
inline constexpr int64_t kSumPieceBytes = int64_t{4} << 20;
// Returns the size, in bytes, of the receive buffer for the sum of `numel` elements: one piece of the rank's
// share from each peer. Returns 0 if there is only one rank.
int64_t SumScratchBytes(int64_t numel, int64_t element_bytes, int64_t ranks);

// Returns the number of rows of logits that the head computes at a time. The number limits the memory of the
// logits and does not affect the result. On a device, it is a multiple of the kernel's tile size if possible.
int64_t LogitRowsAtOnce(const MicroBatchShape& shape, int64_t vocab, DType dtype, bool on_device);

}  // namespace trainctl::model
