// Attention of the tokens that follow those of a cache.

#include <ATen/ATen.h>

#include <cmath>

#include "nn/attention.h"

namespace trainctl::nn {
namespace {

// Query heads that share keys are rows of one product: [kv_heads, group * tokens, head_dim].
at::Tensor Attend(const at::Tensor& queries, int64_t num_new, const KeyValueCache& cache) {
  at::Tensor scores = at::bmm(queries, cache.keys().transpose(1, 2));
  scores.mul_(1.0 / std::sqrt(static_cast<double>(queries.size(2))));
  if (num_new > 1) {
    const int64_t num_keys = cache.num_tokens();
    const at::Tensor later =
        at::ones({num_new, num_keys}, scores.options().dtype(at::kBool)).triu_(num_keys - num_new + 1);
    scores.view({scores.size(0), -1, num_new, num_keys}).masked_fill_(later, -INFINITY);
  }
  return at::bmm(at::softmax(scores, /*dim=*/2), cache.values());
}

}  // namespace

void CachedAttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                            KeyValueCache& cache, at::Tensor& out, at::Tensor& lse) {
  const int64_t n = shape.seq_len;
  const at::Tensor heads = qkv.view({n, -1, shape.head_dim}).transpose(0, 1);  // [heads, n, head_dim]
  cache.Append(heads.narrow(0, shape.heads, shape.kv_heads),
               heads.narrow(0, shape.heads + shape.kv_heads, shape.kv_heads));
  if (cache.num_tokens() == n) return AttentionForward(shape, qkv, view, out, lse);
  const at::Tensor queries = heads.narrow(0, 0, shape.heads).reshape({shape.kv_heads, -1, shape.head_dim});
  out.view({n, shape.heads, shape.head_dim})
      .copy_(Attend(queries, n, cache).view({shape.heads, n, shape.head_dim}).transpose(0, 1));
}

}  // namespace trainctl::nn
