// Attention of the tokens that follow those of a cache.

#include <algorithm>

#include "device/aten.h"
#include "nn/attention.h"
#include "nn/attention_views.h"
#include "nn/segment_run.h"

namespace trainctl::nn {
namespace {

// Query heads that share keys are rows of one product: [kv_heads, group * tokens, head_dim].
at::Tensor Attend(const AttentionShape& shape, const at::Tensor& queries, const KeyValueCache& cache) {
  const int64_t num_new = shape.seq_len;
  const int64_t first_query = cache.num_tokens() - num_new;
  // The first key that any of the queries sees.
  const int64_t first_key = shape.window > 0 ? std::max<int64_t>(first_query + 1 - shape.window, 0) : 0;
  const int64_t num_keys = cache.num_tokens() - first_key;
  const auto seen = [&](const at::Tensor& heads) { return heads.narrow(1, first_key, num_keys); };
  at::Tensor scores = at::bmm(queries, seen(cache.keys()).transpose(1, 2));
  if (shape.softcap == 0) {
    scores.mul_(ScaleOf(shape));
  } else {
    scores = scores.to(AccumulatorOf(scores.scalar_type()));
    scores.mul_(ScaleOf(shape) / shape.softcap).tanh_().mul_(shape.softcap);
  }
  if (num_new > 1) {
    at::Tensor by_head = scores.view({scores.size(0), -1, num_new, num_keys});
    HideKeys(shape.window, first_query - first_key, by_head);
  }
  return at::bmm(at::softmax(scores, /*dim=*/2).to(queries.scalar_type()), seen(cache.values()));
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
      .copy_(Attend(shape, queries, cache).view({shape.heads, n, shape.head_dim}).transpose(0, 1));
}

}  // namespace trainctl::nn
