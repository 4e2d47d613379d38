// Flash attention as LibTorch brings it for CUDA: documents lie one behind another and are told by where
// they begin, so nothing is padded; query heads share key and value heads within the kernel.

#include <ATen/ATen.h>

#include "nn/attention.h"

namespace trainctl::nn {
namespace {

// [n, heads, head_dim] of qkv [n, (heads + 2 kv_heads) * head_dim].
at::Tensor Heads(const AttentionShape& shape, const at::Tensor& qkv, int64_t first, int64_t heads) {
  return qkv.view({shape.batch * shape.seq_len, -1, shape.head_dim}).narrow(1, first, heads);
}

struct QueryKeyValue {
  at::Tensor q, k, v;
};

QueryKeyValue Split(const AttentionShape& shape, const at::Tensor& qkv) {
  return {Heads(shape, qkv, 0, shape.heads), Heads(shape, qkv, shape.heads, shape.kv_heads),
          Heads(shape, qkv, shape.heads + shape.kv_heads, shape.kv_heads)};
}

at::Tensor OutputHeads(const AttentionShape& shape, const at::Tensor& out) {
  return out.view({shape.batch * shape.seq_len, shape.heads, shape.head_dim});
}

}  // namespace

bool FlashServes(const AttentionShape& shape, const at::Tensor& qkv) {
  const DType dtype = qkv.scalar_type() == at::kBFloat16 ? DType::kBF16 : DType::kF32;
  return qkv.is_cuda() && model::FlashServes(dtype, shape.head_dim);
}

void FlashForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view, at::Tensor& out,
                  at::Tensor& lse) {
  const QueryKeyValue x = Split(shape, qkv);
  const auto result = at::_flash_attention_forward(
      x.q, x.k, x.v, view.document_offsets, view.document_offsets, view.longest_document,
      view.longest_document, /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false);
  out = std::get<0>(result).view_as(out);
  lse = std::get<1>(result).view_as(lse);  // [heads, n]
}

void FlashBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                   const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout, at::Tensor& dqkv) {
  const QueryKeyValue x = Split(shape, qkv);
  // Without dropout no random state is read; the call wants tensors all the same.
  const at::Tensor unused = at::empty({2}, qkv.options().dtype(at::kUInt64));
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      OutputHeads(shape, dout), x.q, x.k, x.v, OutputHeads(shape, out), lse, view.document_offsets,
      view.document_offsets, view.longest_document, view.longest_document, /*dropout_p=*/0.0,
      /*is_causal=*/true, unused, unused);
  const QueryKeyValue target = Split(shape, dqkv);
  target.q.copy_(dq);
  target.k.copy_(dk);
  target.v.copy_(dv);
}

}  // namespace trainctl::nn
