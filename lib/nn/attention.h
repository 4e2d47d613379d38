// Causal attention inside documents over a fused qkv activation, grouped-query heads included.
// qkv: [batch, seq, (heads + 2 kv_heads) * head_dim], queries first, then keys, then values.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/segment.h"

namespace trainctl::nn {

struct AttentionShape {
  int64_t batch = 0;
  int64_t seq_len = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

// Writes out [n, heads * head_dim] and lse [heads, n] (fp32). `document` is [batch, seq_len].
void AttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const int32_t* document,
                      at::Tensor& out, at::Tensor& lse);
// Writes dqkv (the shape of qkv).
void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const int32_t* document,
                       const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                       at::Tensor& dqkv);

}  // namespace trainctl::nn
