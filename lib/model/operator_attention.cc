// Causal attention within documents, including grouped-query heads (Ainslie et al. 2023, arXiv 2305.13245),
// on a fused qkv activation. Saves qkv, the output and the log of each row's sum of exponentials. The
// backward recomputes the scores. Device kernels return separate gradients of queries, keys and values, so
// another pass joins them. If RoPE precedes attention, that pass also rotates them back.

#include <algorithm>

#include "kernels/attention.h"
#include "model/operator_common.h"

namespace trainctl::model {
namespace {

// Returns the bytes of all threads' workspaces.
int64_t CpuTemp(const Segment& segment, const AttentionAttributes& a, bool backward) {
  return segment.threads * kernels::AttentionWorkspace(segment.shape.seq_len, a.head_dim, backward) *
         kFp32Bytes;
}

// Returns the bytes of the results of LibTorch's kernel before they are copied into place, and of the
// kernel's own buffers in the backward. If query heads share keys and values, the kernel allocates gradients
// of keys and values for every query head. It also allocates the gradients of queries in fp32 and one sum per
// row, both with room for one more tile per sequence (Dao-AILab/flash-attention
// csrc/flash_attn/flash_api.cpp, mha_varlen_bwd: dq_accum, softmax_d, dk_expanded, dv_expanded). Assumes that
// each sequence is one document; each additional document adds a tile.
int64_t FlashTemp(const Segment& segment, const AttentionAttributes& a, bool backward) {
  constexpr int64_t kTileRows = 128;
  const int64_t n = segment.shape.tokens();
  const int64_t element = DTypeBytes(segment.dtype);
  const int64_t query_bytes = n * a.heads * a.head_dim * element;
  if (!backward) return query_bytes + n * a.heads * kFp32Bytes;
  const int64_t key_bytes = n * a.kv_heads * a.head_dim * element;
  const int64_t expanded = a.kv_heads < a.heads ? 2 * query_bytes : 0;
  const int64_t rows = n + kTileRows * segment.shape.batch;
  const int64_t head_dim = a.head_dim <= 192 ? (a.head_dim + 31) / 32 * 32 : 256;
  return query_bytes + 2 * key_bytes + expanded + rows * a.heads * (head_dim + 1) * kFp32Bytes;
}

// Returns the temporary bytes of lib/nn/attention_reference.cc, which processes one kv head at a time: keys
// and values (and, in the backward, their gradients) in the accumulator type, and three tiles of scores.
int64_t ScoreTilesTemp(const Segment& segment, const AttentionAttributes& a, bool backward) {
  const int64_t n = segment.shape.tokens();
  const int64_t group = a.heads / a.kv_heads;
  const int64_t scores =
      std::min(kScoreTileBytes, n * segment.shape.seq_len * group * AccumulatorBytes(segment));
  return (backward ? 4 : 2) * n * a.head_dim * AccumulatorBytes(segment) + 3 * scores;
}

int64_t TempBytes(const Segment& segment, const AttentionAttributes& attributes, bool backward) {
  if (!segment.on_device && segment.dtype != DType::kF64) return CpuTemp(segment, attributes, backward);
  return RunsFlashAttention(segment, attributes) ? FlashTemp(segment, attributes, backward)
                                                 : ScoreTilesTemp(segment, attributes, backward);
}

void Complete(Segment& segment, Operator& op, const std::string& name) {
  const auto& attributes = op.As<AttentionAttributes>();
  const int output = AppendValue(segment, name, NumRows(segment, op), attributes.heads * attributes.head_dim);
  const int lse = AppendValue(segment, name + "_lse", AccumulatorOf(segment.dtype), attributes.heads,
                              segment.shape.tokens());
  op.outputs = {output, lse};
  op.saved = {op.inputs[0], output, lse};
  op.forward_temp_bytes = TempBytes(segment, attributes, /*backward=*/false);
  op.backward_temp_bytes = TempBytes(segment, attributes, /*backward=*/true);
}

// Adds the work of lib/nn/attention_reference.cc: fp32 products that form or use scores, and the passes over
// the scores between these products.
void AddScoreProducts(const Segment& segment, const AttentionAttributes& a, bool backward, Work& work) {
  const double keys =
      MeanVisibleKeys(static_cast<double>(segment.shape.seq_len), static_cast<double>(a.window));
  const int64_t group = a.heads / a.kv_heads;
  const double rows = static_cast<double>(segment.shape.seq_len * group);
  const double head_dim = static_cast<double>(a.head_dim);
  const double calls = static_cast<double>(segment.shape.batch * a.kv_heads);
  const double to_scores = backward ? 2 : 1;  // products whose result is scores: q kT; dout vT
  const double from_scores = backward ? 3 : 1;
  work.products = {{{DType::kF32, rows, head_dim, keys, kFp32Bytes}, to_scores * calls},
                   {{DType::kF32, rows, keys, head_dim, kFp32Bytes}, from_scores * calls}};
  // The forward reads and writes the scores four times (scale, mask, subtract the log-sum, exponentiate) and
  // reads them once for the sum. Instead of the sum, the backward subtracts the row's product, multiplies by
  // the weights and scales. A soft cap reads and writes the scores twice more (tanh, scale), and its gradient
  // reads two tiles and writes one.
  const double passes = (backward ? 14 : 9) + (a.softcap == 0 ? 0 : backward ? 7 : 4);
  work[Resource::kMovedBytes] += calls * rows * keys * passes * kFp32Bytes;
}

void AddDeviceKernels(const Segment& segment, const AttentionAttributes& a, bool backward, Work& work) {
  if (!RunsFlashAttention(segment, a)) return AddScoreProducts(segment, a, backward, work);
  work.attention = {{{.tokens = Tokens(segment),
                      .seq_len = static_cast<double>(segment.shape.seq_len),
                      .heads = static_cast<double>(a.heads),
                      .head_dim = static_cast<double>(a.head_dim),
                      .window = static_cast<double>(a.window < segment.shape.seq_len ? a.window : 0),
                      .backward = backward}}};
}

// Returns the work of the kernel. On the CPU, that is `products` over all scores that it computes. Each
// thread gets whole heads or, in the forward, whole parts of a head's queries. All threads wait for the one
// with the most work.
Work KernelWork(const Segment& segment, const Operator& op, bool backward) {
  const auto& attributes = op.As<AttentionAttributes>();
  const MicroBatchShape& shape = segment.shape;
  const int64_t threads = segment.threads;
  const int64_t dealt = shape.batch * attributes.kv_heads;
  const int64_t tasks = dealt * (backward ? 1 : AttentionCuts(dealt, threads));
  const int64_t rounds = (tasks + threads - 1) / threads;
  const double wait = static_cast<double>(rounds * threads) / static_cast<double>(tasks);
  const double products = backward ? 5 : 2;
  const double heads = static_cast<double>(shape.batch * attributes.heads) * wait * products;
  const double scores = static_cast<double>(ScoresComputed(shape.seq_len, attributes.window));
  Work work;
  work[backward ? Resource::kAttentionBackwardFlops : Resource::kAttentionFlops] =
      heads * 2 * scores * static_cast<double>(attributes.head_dim);
  work[Resource::kAttentionTiles] =
      heads * scores / static_cast<double>(kernels::kAttentionQueries * kernels::kAttentionKeys);
  const bool by_head = segment.on_device && !RunsFlashAttention(segment, attributes);
  work[Resource::kOperators] = by_head ? static_cast<double>(attributes.kv_heads) : 1;
  if (segment.on_device) AddDeviceKernels(segment, attributes, backward, work);
  return work;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  if (pass == Pass::kForward) return KernelWork(segment, op, /*backward=*/false);
  const auto& a = op.As<AttentionAttributes>();
  Work work = KernelWork(segment, op, /*backward=*/true);
  if (RunsFlashAttention(segment, a) ||
      op.with_previous.Has(pass))  // joins the gradients, or rotates them back
    work += PassOverRows(segment, op, 2 * static_cast<double>((a.heads + 2 * a.kv_heads) * a.head_dim));
  return work;
}

}  // namespace

double MeanVisibleKeys(double seq_len, double window) {
  if (window == 0 || window >= seq_len) return (seq_len + 1) / 2;
  // The first `window` queries see (window + 1) / 2 keys on average, the others `window`.
  return window - window * (window - 1) / (2 * seq_len);
}

int64_t ScoresComputed(int64_t seq_len, int64_t window) {
  constexpr int64_t kTile = kernels::kAttentionQueries;
  constexpr int64_t kLanes = kernels::kAttentionLanes;
  static_assert(kernels::WholeLanes(kTile) == kTile && kTile % kernels::kAttentionStrip == 0);
  const int64_t limit = window == 0 ? seq_len : window;
  // Scores of a tile's first `rows` queries. The tile is number `tile` of those of kTile queries.
  const auto of_tile = [limit](int64_t tile, int64_t rows) {
    int64_t scores = 0;
    for (int64_t first = tile * kTile; first < tile * kTile + rows; first += kernels::kAttentionStrip) {
      const int64_t end = std::min(first + kernels::kAttentionStrip, tile * kTile + rows);
      const int64_t first_key = std::max<int64_t>(first + 1 - limit, 0) / kLanes * kLanes;
      scores += (end - first) * (kernels::WholeLanes(end) - first_key);
    }
    return scores;
  };
  // The queries of the first tiles see all earlier keys, those of the last ones a window of keys. At most one
  // whole tile lies between.
  const int64_t tiles = seq_len / kTile;
  const int64_t whole = std::min(tiles, limit / kTile);
  int64_t scores = whole * of_tile(0, kTile) + kTile * kTile * (whole * (whole - 1) / 2);
  if (whole < tiles) scores += of_tile(whole, kTile) + (tiles - whole - 1) * of_tile(whole + 1, kTile);
  return scores + of_tile(tiles, seq_len % kTile);
}

int64_t AttentionCuts(int64_t num_heads, int64_t threads) {
  constexpr int64_t kTasksOfAThread = 4;
  return threads == 1 ? 1 : (kTasksOfAThread * threads + num_heads - 1) / num_heads;
}

bool RunsFlashAttention(const Segment& segment, const AttentionAttributes& attention) {
  return segment.on_device && SupportsFlashAttention(segment.dtype, attention.head_dim, attention.softcap);
}

bool SupportsFlashAttention(DType dtype, int64_t head_dim, double softcap) {
  return dtype == DType::kBF16 && head_dim % 8 == 0 && head_dim <= 256 && softcap == 0;
}

constinit const OperatorEntry kAttentionOperator = {
    .name = "attention",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
