// cuDNN's attention as LibTorch brings it for CUDA. On Hopper it takes half to two thirds of the time that
// flash attention takes there (docs/reference/benchmarks.md). Its form for packed documents is left alone:
// with LibTorch 2.11 it makes a new plan in every call, and its backward touches memory that is not there.

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "nn/attention.h"

namespace trainctl::nn {
namespace {

// [batch, heads, seq, head_dim] of qkv [n, (heads + 2 kv_heads) * head_dim], without a copy.
at::Tensor Heads(const AttentionShape& shape, const at::Tensor& qkv, int64_t first, int64_t heads) {
  return qkv.view({shape.batch, shape.seq_len, -1, shape.head_dim}).narrow(2, first, heads).transpose(1, 2);
}

struct QueryKeyValue {
  at::Tensor q, k, v;
};

QueryKeyValue Split(const AttentionShape& shape, const at::Tensor& qkv) {
  return {Heads(shape, qkv, 0, shape.heads), Heads(shape, qkv, shape.heads, shape.kv_heads),
          Heads(shape, qkv, shape.heads + shape.kv_heads, shape.kv_heads)};
}

}  // namespace

bool CudnnServes(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view) {
  constexpr int64_t kLargestHead = 128, kTokensOfTile = 64;
  return FlashServes(shape, qkv) && shape.head_dim <= kLargestHead && shape.seq_len % kTokensOfTile == 0 &&
         view.longest_document == shape.seq_len && view.document_offsets.size(0) == shape.batch + 1 &&
         !at::globalContext().deterministicAlgorithms();
}

void CudnnForward(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& out, at::Tensor& lse) {
  const QueryKeyValue x = Split(shape, qkv);
  const auto result = at::_scaled_dot_product_cudnn_attention(
      x.q, x.k, x.v, /*attn_bias=*/{}, /*compute_log_sumexp=*/true, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false);
  out = std::get<0>(result).transpose(1, 2).reshape_as(out);
  lse = std::get<1>(result).view_as(lse);  // [batch, heads, seq, 1]
}

void CudnnBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& out,
                   const at::Tensor& lse, const at::Tensor& dout, at::Tensor& dqkv) {
  const QueryKeyValue x = Split(shape, qkv);
  const auto heads = [&shape](const at::Tensor& y) { return Heads(shape, y, 0, shape.heads); };
  // Without dropout no random state is read; the call wants tensors all the same.
  const at::Tensor unused = at::empty({}, qkv.options().dtype(at::kLong));
  const auto [dq, dk, dv] = at::_cudnn_attention_backward(
      heads(dout), x.q, x.k, x.v, heads(out), lse.view({shape.batch, shape.heads, shape.seq_len, 1}), unused,
      unused, /*attn_bias=*/{}, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, shape.seq_len, shape.seq_len,
      /*dropout_p=*/0.0, /*is_causal=*/true);
  const QueryKeyValue target = Split(shape, dqkv);
  target.q.copy_(dq);
  target.k.copy_(dk);
  target.v.copy_(dv);
}

}  // namespace trainctl::nn
