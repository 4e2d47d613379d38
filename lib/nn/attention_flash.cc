// Flash attention as LibTorch brings it for CUDA: documents lie one behind another and are told by where
// they begin, so nothing is padded; query heads share key and value heads within the kernel.

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

#include "device/aten.h"
#include "nn/attention.h"
#include "nn/attention_views.h"

namespace trainctl::nn {
namespace {

at::Tensor OutputHeads(const AttentionShape& shape, const at::Tensor& out) {
  return out.view({shape.batch * shape.seq_len, shape.heads, shape.head_dim});
}

// Numbers of visible keys before and after the query's position. Empty if there is no limit.
struct Window {
  std::optional<int64_t> before, after;
};

// A window that hides no key of any document is left out, so that it does not select another kernel.
Window WindowOf(const AttentionShape& shape, const TokenView& view) {
  if (!shape.LimitsKeys(view.longest_document)) return {};
  return {.before = shape.window - 1, .after = 0};
}

// Whether LibTorch, or a plugin, brings it for the tensor's device; where it does it brings cuDNN's too.
bool IsThereFor(const at::Tensor& x) {
  static const c10::OperatorHandle attention =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_flash_attention_forward", "");
  return attention.hasKernelForDispatchKey(x.key_set().highestBackendKey() == c10::BackendComponent::CUDABit
                                               ? c10::DispatchKey::CUDA
                                               : c10::DispatchKey::PrivateUse1);
}

}  // namespace

bool FlashServes(const AttentionShape& shape, const at::Tensor& qkv) {
  const DType dtype = qkv.scalar_type() == at::kBFloat16 ? DType::kBF16 : DType::kF32;
  return !qkv.is_cpu() && model::SupportsFlashAttention(dtype, shape.head_dim, shape.softcap) &&
         IsThereFor(qkv);
}

void FlashForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view, at::Tensor& out,
                  at::Tensor& lse) {
  const QueryKeyValue x = SplitHeads(shape, qkv);
  const Window window = WindowOf(shape, view);
  const auto result = at::_flash_attention_forward(
      x.q, x.k, x.v, view.document_offsets, view.document_offsets, view.longest_document,
      view.longest_document, /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false,
      GivenScale(shape), window.before, window.after);
  out = std::get<0>(result).view_as(out);
  lse = std::get<1>(result).view_as(lse);  // [heads, n]
}

QueryKeyValue FlashBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                            const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout) {
  const QueryKeyValue x = SplitHeads(shape, qkv);
  const Window window = WindowOf(shape, view);
  // Without dropout no random state is read; the call wants tensors all the same.
  const at::Tensor unused = at::empty({2}, qkv.options().dtype(at::kUInt64));
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      OutputHeads(shape, dout), x.q, x.k, x.v, OutputHeads(shape, out), lse, view.document_offsets,
      view.document_offsets, view.longest_document, view.longest_document, /*dropout_p=*/0.0,
      /*is_causal=*/true, unused, unused, GivenScale(shape), window.before, window.after);
  return {dq, dk, dv};
}

}  // namespace trainctl::nn
