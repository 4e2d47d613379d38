#include "nn/attention.h"

#include <ATen/ATen.h>

#include "nn/attention_views.h"

namespace trainctl::nn {
namespace {

void CpuForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view, at::Tensor& out,
                at::Tensor& lse) {
  for (const Piece& piece : CutDocuments(shape, view.document)) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const HeadViews views(shape, piece, head);
      auto [attended, log_sum_exp] = at::_scaled_dot_product_flash_attention_for_cpu(
          views.Queries(qkv), views.Shared(views.Keys(qkv)), views.Shared(views.Values(qkv)), 0.0,
          /*is_causal=*/true);
      views.Output(out).copy_(attended);
      views.Lse(lse).copy_(log_sum_exp);
    }
  }
}

void CpuBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                 const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout, at::Tensor& dqkv) {
  for (const Piece& piece : CutDocuments(shape, view.document)) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const HeadViews views(shape, piece, head);
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

}  // namespace

void AttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                      at::Tensor& out, at::Tensor& lse) {
  if (qkv.is_cpu()) return CpuForward(shape, qkv, view, out, lse);
  if (FlashServes(shape, qkv)) return FlashForward(shape, qkv, view, out, lse);
  ReferenceAttentionForward(shape, qkv, view, out, lse);
}

void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                       const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                       at::Tensor& dqkv) {
  if (qkv.is_cpu()) return CpuBackward(shape, qkv, view, out, lse, dout, dqkv);
  if (FlashServes(shape, qkv)) return FlashBackward(shape, qkv, view, out, lse, dout, dqkv);
  ReferenceAttentionBackward(shape, qkv, view, out, lse, dout, dqkv);
}

}  // namespace trainctl::nn
