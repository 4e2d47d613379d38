// Attention by whole matrices of scores.

#include <ATen/ATen.h>

#include <cmath>

#include "nn/attention.h"
#include "nn/attention_views.h"

namespace trainctl::nn {
namespace {

double ScaleOf(const AttentionShape& shape) { return 1.0 / std::sqrt(static_cast<double>(shape.head_dim)); }

// Scaled scores [sequences, group, tokens, tokens] in fp32; a key after the query has -infinity.
at::Tensor MaskedScores(const AttentionShape& shape, const at::Tensor& q, const at::Tensor& k) {
  const at::Tensor scores =
      at::matmul(q.to(at::kFloat), k.to(at::kFloat).transpose(2, 3)).mul_(ScaleOf(shape));
  const int64_t tokens = q.size(2);
  const at::Tensor later = at::ones({tokens, tokens}, q.options().dtype(at::kBool)).triu_(1);
  return scores.masked_fill(later, -INFINITY);
}

}  // namespace

void ReferenceAttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                               at::Tensor& out, at::Tensor& lse) {
  for (const Piece& piece : CutDocuments(shape, view.document)) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const HeadViews views(shape, piece, head);
      const at::Tensor scores = MaskedScores(shape, views.Queries(qkv), views.Shared(views.Keys(qkv)));
      const at::Tensor row_lse = scores.logsumexp(/*dim=*/{3}, /*keepdim=*/true);
      const at::Tensor weights = scores.sub(row_lse).exp_();
      views.Output(out).copy_(at::matmul(weights, views.Shared(views.Values(qkv)).to(at::kFloat)));
      views.Lse(lse).copy_(row_lse.squeeze(3));
    }
  }
}

void ReferenceAttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                                const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                                at::Tensor& dqkv) {
  for (const Piece& piece : CutDocuments(shape, view.document)) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const HeadViews views(shape, piece, head);
      const at::Tensor q = views.Queries(qkv).to(at::kFloat);
      const at::Tensor k = views.Shared(views.Keys(qkv)).to(at::kFloat);
      const at::Tensor v = views.Shared(views.Values(qkv)).to(at::kFloat);
      const at::Tensor dy = views.Output(dout).to(at::kFloat);
      const at::Tensor weights = MaskedScores(shape, q, k).sub(views.Lse(lse).unsqueeze(3)).exp_();
      const at::Tensor row_dot = dy.mul(views.Output(out)).sum(/*dim=*/{3}, /*keepdim=*/true);
      const at::Tensor dscores =
          at::matmul(dy, v.transpose(2, 3)).sub_(row_dot).mul_(weights).mul_(ScaleOf(shape));
      views.Queries(dqkv).copy_(at::matmul(dscores, k));
      views.Keys(dqkv).copy_(at::matmul(dscores.transpose(2, 3), q).sum(/*dim=*/{1}, /*keepdim=*/true));
      views.Values(dqkv).copy_(at::matmul(weights.transpose(2, 3), dy).sum(/*dim=*/{1}, /*keepdim=*/true));
    }
  }
}

}  // namespace trainctl::nn
