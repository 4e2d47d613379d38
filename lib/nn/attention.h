// Causal attention inside documents over a fused qkv activation, grouped-query heads included.
// qkv: [batch, seq, (heads + 2 kv_heads) * head_dim], queries first, then keys, then values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/kernels.h"
#include "model/segment.h"
#include "nn/key_value_cache.h"
#include "nn/rope_tables.h"
#include "nn/token_view.h"

namespace trainctl::nn {

struct AttentionShape {
  int64_t batch = 0;
  int64_t seq_len = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

// Each [n, heads, head_dim].
struct QueryKeyValue {
  at::Tensor q, k, v;
};

// How queries and keys were rotated before attention saw them, and what turns their gradients back.
struct Rotation {
  const kernels::TypedKernels& kernels;
  const int32_t* positions;  // [n], of the device
  const RopeTables& angles;
};

// Writes out [n, heads * head_dim] and lse [heads, n] (accumulators), the log of each row's sum of
// exponentials. A device may put other tensors of these sizes in their places, and lse in an order of its
// own.
void AttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                      at::Tensor& out, at::Tensor& lse);
// Writes dqkv (the shape of qkv), of queries and keys as they were before their rotation.
void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                       const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                       const Rotation& rotation, at::Tensor& dqkv);

// Of the tokens of one sequence that follow those of `cache`, which gets theirs; shape.seq_len counts the new
// ones alone. Writes out; lse only where the cache was empty.
void CachedAttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                            KeyValueCache& cache, at::Tensor& out, at::Tensor& lse);

// What serves it. Gradients of all of these are of queries and keys as they are given.

// Our own for CPUs, in fp32 or bf16.
bool CpuServes(const at::Tensor& qkv);
void CpuAttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                         at::Tensor& out, at::Tensor& lse);
void CpuAttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                          const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                          at::Tensor& dqkv);

// The same by matrices of scores, for devices and element types that no fused attention serves, and as the
// reference of tests. Of the scores of one kv head a tile of `tile_bytes` is there at a time, or
// those of one query where that is more; two more of its size come and go.
void ReferenceAttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                               at::Tensor& out, at::Tensor& lse, int64_t tile_bytes = model::kScoreTileBytes);
void ReferenceAttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                                const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                                at::Tensor& dqkv, int64_t tile_bytes = model::kScoreTileBytes);

// cuDNN's over sequences that hold one document each, bf16 on CUDA, except where the same bits are wanted
// each time, or flash attention is (time_attention.h). `out` and `lse` become what it returns; lse is in its
// own order.
bool CudnnServes(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view);
void CudnnForward(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& out, at::Tensor& lse);
QueryKeyValue CudnnBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& out,
                            const at::Tensor& lse, const at::Tensor& dout);

// Flash attention (Dao 2023) over packed documents, bf16 on CUDA. `out` and `lse` become what it returns.
bool FlashServes(const AttentionShape& shape, const at::Tensor& qkv);
void FlashForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view, at::Tensor& out,
                  at::Tensor& lse);
QueryKeyValue FlashBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                            const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout);

}  // namespace trainctl::nn
