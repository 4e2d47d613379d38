#include "nn/attention.h"

#include <ATen/ATen.h>

#include <functional>

namespace trainctl::nn {
namespace {

// A run of sequences [first_row, first_row + rows) of one kv head that attends within itself.
struct Piece {
  int64_t first_sequence = 0;
  int64_t num_sequences = 0;
  int64_t begin = 0;  // positions within the sequence
  int64_t count = 0;
};

// Whole sequences together while they hold one document each; otherwise a piece per document.
std::vector<Piece> CutDocuments(const AttentionShape& shape, const int32_t* document) {
  std::vector<Piece> pieces;
  bool whole = false;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int32_t* row = document + b * shape.seq_len;
    if (row[0] == row[shape.seq_len - 1]) {
      if (whole) {
        ++pieces.back().num_sequences;
      } else {
        pieces.push_back({b, 1, 0, shape.seq_len});
      }
      whole = true;
      continue;
    }
    whole = false;
    int64_t begin = 0;
    for (int64_t t = 1; t <= shape.seq_len; ++t) {
      if (t < shape.seq_len && row[t] == row[begin]) continue;
      pieces.push_back({b, 1, begin, t - begin});
      begin = t;
    }
  }
  return pieces;
}

// Views of one kv head's part of a piece, as [sequences, query heads, tokens, head_dim].
struct HeadViews {
  at::Tensor q, k, v;
};

class Views {
 public:
  Views(const AttentionShape& shape, const Piece& piece, int64_t kv_head)
      : shape_(shape), piece_(piece), kv_head_(kv_head), group_(shape.heads / shape.kv_heads) {}

  at::Tensor Queries(const at::Tensor& qkv) const { return Columns(qkv, kv_head_ * group_, group_); }
  at::Tensor Keys(const at::Tensor& qkv) const { return Columns(qkv, shape_.heads + kv_head_, 1); }
  at::Tensor Values(const at::Tensor& qkv) const {
    return Columns(qkv, shape_.heads + shape_.kv_heads + kv_head_, 1);
  }
  // One key (value) head seen by all query heads of its group, without a copy.
  at::Tensor Shared(const at::Tensor& heads) const { return heads.expand({-1, group_, -1, -1}); }
  at::Tensor Output(const at::Tensor& out) const { return Columns(out, kv_head_ * group_, group_); }
  // [sequences, tokens, group] of lse [heads, batch * seq].
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

}  // namespace

void AttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const int32_t* document,
                      at::Tensor& out, at::Tensor& lse) {
  for (const Piece& piece : CutDocuments(shape, document)) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const Views views(shape, piece, head);
      auto [attended, log_sum_exp] = at::_scaled_dot_product_flash_attention_for_cpu(
          views.Queries(qkv), views.Shared(views.Keys(qkv)), views.Shared(views.Values(qkv)), 0.0,
          /*is_causal=*/true);
      views.Output(out).copy_(attended);
      views.Lse(lse).copy_(log_sum_exp);
    }
  }
}

void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const int32_t* document,
                       const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                       at::Tensor& dqkv) {
  for (const Piece& piece : CutDocuments(shape, document)) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const Views views(shape, piece, head);
      // The kernel reads lse as the forward made it: [sequences, heads, tokens] over
      // [sequences, tokens, heads].
      const at::Tensor head_lse = views.Lse(lse).transpose(1, 2).contiguous().transpose(1, 2);
      auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          views.Output(dout), views.Queries(qkv), views.Shared(views.Keys(qkv)),
          views.Shared(views.Values(qkv)), views.Output(out), head_lse, 0.0, /*is_causal=*/true);
      views.Queries(dqkv).copy_(dq);
      at::Tensor dk_target = views.Keys(dqkv);
      at::Tensor dv_target = views.Values(dqkv);
      if (shape.heads == shape.kv_heads) {
        dk_target.copy_(dk);
        dv_target.copy_(dv);
      } else {
        at::sum_out(dk_target, dk, {1}, /*keepdim=*/true);
        at::sum_out(dv_target, dv, {1}, /*keepdim=*/true);
      }
    }
  }
}

}  // namespace trainctl::nn
