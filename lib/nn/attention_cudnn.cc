// cuDNN's attention as LibTorch brings it for CUDA. On Hopper it takes half to two thirds of the time that
// flash attention takes there (docs/reference/benchmarks.md); time_attention.h finds out elsewhere. Its form
// for packed documents is left alone: with LibTorch 2.11 it makes a new plan in every call, and its backward
// touches memory that is not there.

#include <ATen/Context.h>

#include "device/aten.h"
#include "nn/attention.h"
#include "nn/attention_views.h"

namespace trainctl::nn {
namespace {

// [batch, heads, seq, head_dim] of [n, heads, head_dim], without a copy.
at::Tensor BySequence(const AttentionShape& shape, const at::Tensor& x) {
  return x.view({shape.batch, shape.seq_len, -1, shape.head_dim}).transpose(1, 2);
}

// [n, heads, head_dim] of that.
at::Tensor ByToken(const AttentionShape& shape, const at::Tensor& x) {
  return x.transpose(1, 2).reshape({shape.batch * shape.seq_len, -1, shape.head_dim});
}

}  // namespace

bool CudnnServes(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view) {
  constexpr int64_t kLargestHead = 128, kTokensOfTile = 64;
  return FlashServes(shape, qkv) && !shape.LimitsKeys(shape.seq_len) && shape.head_dim <= kLargestHead &&
         shape.seq_len % kTokensOfTile == 0 && view.longest_document == shape.seq_len &&
         view.document_offsets.size(0) == shape.batch + 1 && !at::globalContext().deterministicAlgorithms() &&
         at::globalContext().userEnabledCuDNNSDP();
}

void CudnnForward(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& out, at::Tensor& lse) {
  const QueryKeyValue x = SplitHeads(shape, qkv);
  const auto result = at::_scaled_dot_product_cudnn_attention(
      BySequence(shape, x.q), BySequence(shape, x.k), BySequence(shape, x.v), /*attn_bias=*/{},
      /*compute_log_sumexp=*/true, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false, GivenScale(shape));
  out = std::get<0>(result).transpose(1, 2).reshape_as(out);
  lse = std::get<1>(result).view_as(lse);  // [batch, heads, seq, 1]
}

QueryKeyValue CudnnBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& out,
                            const at::Tensor& lse, const at::Tensor& dout) {
  const QueryKeyValue x = SplitHeads(shape, qkv);
  // Without dropout no random state is read; the call wants tensors all the same.
  const at::Tensor unused = at::empty({}, qkv.options().dtype(at::kLong));
  const auto [dq, dk, dv] = at::_cudnn_attention_backward(
      BySequence(shape, dout), BySequence(shape, x.q), BySequence(shape, x.k), BySequence(shape, x.v),
      BySequence(shape, out), lse.view({shape.batch, shape.heads, shape.seq_len, 1}), unused, unused,
      /*attn_bias=*/{}, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, shape.seq_len, shape.seq_len,
      /*dropout_p=*/0.0, /*is_causal=*/true, GivenScale(shape));
  return {ByToken(shape, dq), ByToken(shape, dk), ByToken(shape, dv)};
}

}  // namespace trainctl::nn
