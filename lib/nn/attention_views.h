// Views of a fused qkv activation as attention needs them: cut into documents, one kv head at a time. No view
// copies elements. Also the parts of the definition of attention that several implementations share.
#pragma once

#include <optional>
#include <vector>

#include "device/aten.h"
#include "nn/attention.h"

namespace trainctl::nn {

// Positions [begin, begin + count) of `num_sequences` adjacent sequences. In each sequence, these tokens
// attend only to each other.
struct Piece {
  int64_t first_sequence = 0;
  int64_t num_sequences = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// Returns one piece for each run of adjacent sequences that contain a single document each, and one piece for
// each document of the other sequences. `document` is [batch, seq_len], in host memory.
std::vector<Piece> CutDocuments(const AttentionShape& shape, const int32_t* document);

// Views of one kv head's part of a piece, as [sequences, query heads, tokens, head_dim]. Keys and values have
// one head.
class HeadViews {
 public:
  HeadViews(const AttentionShape& shape, const Piece& piece, int64_t kv_head)
      : shape_(shape), piece_(piece), kv_head_(kv_head), group_(shape.heads / shape.kv_heads) {}

  at::Tensor Queries(const at::Tensor& qkv) const { return Columns(qkv, kv_head_ * group_, group_); }
  at::Tensor Keys(const at::Tensor& qkv) const { return Columns(qkv, shape_.heads + kv_head_, 1); }
  at::Tensor Values(const at::Tensor& qkv) const {
    return Columns(qkv, shape_.heads + shape_.kv_heads + kv_head_, 1);
  }
  // Repeats one key or value head for all query heads of its group, without a copy.
  at::Tensor Shared(const at::Tensor& heads) const { return heads.expand({-1, group_, -1, -1}); }
  at::Tensor Output(const at::Tensor& out) const { return Columns(out, kv_head_ * group_, group_); }
  // Returns [sequences, group, tokens] of lse [heads, batch * seq]. `group` is the number of query heads per
  // kv head.
  at::Tensor Lse(const at::Tensor& lse) const {
    return lse.view({shape_.heads, shape_.batch, shape_.seq_len})
        .narrow(0, kv_head_ * group_, group_)
        .narrow(1, piece_.first_sequence, piece_.num_sequences)
        .narrow(2, piece_.begin, piece_.count)
        .permute({1, 0, 2});
  }

 private:
  at::Tensor Columns(const at::Tensor& x, int64_t head, int64_t heads) const {
    return x.view({shape_.batch, shape_.seq_len, -1, shape_.head_dim})
        .narrow(0, piece_.first_sequence, piece_.num_sequences)
        .narrow(1, piece_.begin, piece_.count)
        .narrow(2, head, heads)
        .transpose(1, 2);
  }

  const AttentionShape& shape_;
  const Piece& piece_;
  int64_t kv_head_;
  int64_t group_;
};

// Returns the factor of the scores if it is not 1 / sqrt(head_dim), the default of LibTorch's kernels.
inline std::optional<double> GivenScale(const AttentionShape& shape) {
  return shape.scale == 0 ? std::nullopt : std::optional(shape.scale);
}
// Returns the factor of the scores.
double ScaleOf(const AttentionShape& shape);

// Sets the scores [..., queries, keys] of the keys that a query does not see to -infinity. The first query is
// at the position of key `first_query`.
void HideKeys(int64_t window, int64_t first_query, at::Tensor& scores);

// Returns views of the queries, keys and values in qkv [n, (heads + 2 * kv_heads) * head_dim].
inline QueryKeyValue SplitHeads(const AttentionShape& shape, const at::Tensor& qkv) {
  const at::Tensor heads = qkv.view({shape.batch * shape.seq_len, -1, shape.head_dim});
  return {heads.narrow(1, 0, shape.heads), heads.narrow(1, shape.heads, shape.kv_heads),
          heads.narrow(1, shape.heads + shape.kv_heads, shape.kv_heads)};
}

}  // namespace trainctl::nn
