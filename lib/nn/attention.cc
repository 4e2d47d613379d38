#include "nn/attention.h"

namespace trainctl::nn {

void AttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                      at::Tensor& out, at::Tensor& lse) {
  if (CpuServes(qkv)) return CpuAttentionForward(shape, qkv, view, out, lse);
  if (CudnnServes(shape, qkv, view)) return CudnnForward(shape, qkv, out, lse);
  if (FlashServes(shape, qkv)) return FlashForward(shape, qkv, view, out, lse);
  ReferenceAttentionForward(shape, qkv, view, out, lse);
}

void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                       const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                       at::Tensor& dqkv) {
  if (CpuServes(qkv)) return CpuAttentionBackward(shape, qkv, view, out, lse, dout, dqkv);
  if (CudnnServes(shape, qkv, view)) return CudnnBackward(shape, qkv, out, lse, dout, dqkv);
  if (FlashServes(shape, qkv)) return FlashBackward(shape, qkv, view, out, lse, dout, dqkv);
  ReferenceAttentionBackward(shape, qkv, view, out, lse, dout, dqkv);
}

}  // namespace trainctl::nn
