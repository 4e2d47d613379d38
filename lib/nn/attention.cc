#include "nn/attention.h"

#include <ATen/Parallel.h>

#include "device/aten.h"
#include "kernels/kernels.h"

namespace trainctl::nn {
namespace {

// Gradients that a device's kernel brings apart.
void Join(const AttentionShape& shape, const QueryKeyValue& parts, const Rotation* rotation,
          at::Tensor& dqkv) {
  if (rotation == nullptr) {
    const int64_t n = shape.batch * shape.seq_len;
    at::Tensor rows = dqkv.view({n, -1});
    at::cat_out(rows, {parts.q.reshape({n, -1}), parts.k.reshape({n, -1}), parts.v.reshape({n, -1})}, 1);
    return;
  }
  const at::Tensor dq = parts.q.contiguous(), dk = parts.k.contiguous(), dv = parts.v.contiguous();
  rotation->kernels.join_heads(dqkv.data_ptr(), dq.data_ptr(), dk.data_ptr(), dv.data_ptr(),
                               rotation->positions, rotation->angles.cos.data_ptr<float>(),
                               rotation->angles.sin.data_ptr<float>(), shape.batch * shape.seq_len,
                               shape.heads, shape.kv_heads, shape.head_dim);
}

void TurnBack(const AttentionShape& shape, const Rotation& rotation, at::Tensor& dqkv) {
  const int64_t n = shape.batch * shape.seq_len;
  const int64_t row = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  char* const first = static_cast<char*>(dqkv.data_ptr());
  const auto turn = [&](int64_t begin, int64_t end) {
    rotation.kernels.rope(first + begin * row * static_cast<int64_t>(dqkv.itemsize()),
                          rotation.positions + begin, rotation.angles.cos.data_ptr<float>(),
                          rotation.angles.sin.data_ptr<float>(), /*sign=*/-1, kernels::RopePairs::kHalves,
                          end - begin, shape.heads + shape.kv_heads, shape.head_dim,
                          /*rotated=*/shape.head_dim, row);
  };
  if (!dqkv.is_cpu()) return turn(0, n);
  const int64_t threads = at::get_num_threads();
  at::parallel_for(0, n, (n + threads - 1) / threads, turn);
}

}  // namespace

AttentionShape AttentionShapeOf(const model::MicroBatchShape& micro_batch,
                                const model::AttentionAttributes& op) {
  return {.batch = micro_batch.batch,
          .seq_len = micro_batch.seq_len,
          .heads = op.heads,
          .kv_heads = op.kv_heads,
          .head_dim = op.head_dim,
          .scale = op.scale,
          .window = op.window,
          .softcap = op.softcap};
}

void AttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                      at::Tensor& out, at::Tensor& lse) {
  if (CpuServes(qkv)) return CpuAttentionForward(shape, qkv, view, out, lse);
  if (CudnnServes(shape, qkv, view)) return CudnnForward(shape, qkv, out, lse);
  if (FlashServes(shape, qkv)) return FlashForward(shape, qkv, view, out, lse);
  ReferenceAttentionForward(shape, qkv, view, out, lse);
}

void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                       const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                       const Rotation* rotation, at::Tensor& dqkv) {
  if (CudnnServes(shape, qkv, view))
    return Join(shape, CudnnBackward(shape, qkv, out, lse, dout), rotation, dqkv);
  if (FlashServes(shape, qkv))
    return Join(shape, FlashBackward(shape, qkv, view, out, lse, dout), rotation, dqkv);
  if (CpuServes(qkv)) {
    CpuAttentionBackward(shape, qkv, view, out, lse, dout, dqkv);
  } else {
    ReferenceAttentionBackward(shape, qkv, view, out, lse, dout, dqkv);
  }
  if (rotation != nullptr) TurnBack(shape, *rotation, dqkv);
}

}  // namespace trainctl::nn
