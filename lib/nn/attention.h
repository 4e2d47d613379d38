// Causal attention within documents, with grouped-query heads, on a fused qkv activation. A query sees only
// keys of its own document, at its own or an earlier position. If there is a window, it sees only the newest
// of them.
//
// Shapes: qkv is [batch, seq, (heads + 2 * kv_heads) * head_dim], with queries first, then keys, then values.
// n = batch * seq is the number of tokens. AttentionForward and AttentionBackward select one of the
// implementations below by the same conditions. Failures of ATen are exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/segment.h"
#include "nn/key_value_cache.h"
#include "nn/rope_tables.h"
#include "nn/token_view.h"

namespace trainctl::kernels {
struct TypedKernels;
}

namespace trainctl::nn {

struct AttentionShape {
  int64_t batch = 0;
  int64_t seq_len = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  // The next three are defined in model::AttentionAttributes.
  double scale = 0;
  int64_t window = 0;
  double softcap = 0;

  // Whether `window` hides a key from any query of a sequence of `tokens` tokens.
  bool LimitsKeys(int64_t tokens) const { return window > 0 && window < tokens; }
};

// Returns the shape for one operator on a micro-batch.
AttentionShape AttentionShapeOf(const model::MicroBatchShape& micro_batch,
                                const model::AttentionAttributes& op);

// Each tensor is [n, heads, head_dim]; k and v have kv_heads heads.
struct QueryKeyValue {
  at::Tensor q, k, v;
};

// The rotary position embedding (RoPE) that was applied to queries and keys.
struct Rotation {
  const kernels::TypedKernels& kernels;
  const int32_t* positions;  // [n], in device memory
  const RopeTables& angles;
};

// Writes `out` [n, heads * head_dim], and `lse` [heads, n], the log of each row's sum of exponentials, in the
// accumulator type. The caller allocates both. A device implementation may replace them by other tensors of
// the same size, and may store the elements of lse in another order.
void AttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                      at::Tensor& out, at::Tensor& lse);
// Writes `dqkv`, the gradient of qkv, which the caller allocates. If `rotation` is not null, the gradients of
// queries and keys are those before RoPE. If a device kernel returns separate gradients of q, k and v, the
// pass that joins them also rotates them back.
void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                       const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                       const Rotation* rotation, at::Tensor& dqkv);

// Attention for new tokens of one sequence that follow those in `cache`, for inference. shape.seq_len counts
// only the new tokens. Appends their keys and values to the cache and writes `out`. Writes `lse` only if the
// cache was empty.
void CachedAttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                            KeyValueCache& cache, at::Tensor& out, at::Tensor& lse);

// The implementations follow. Each backward returns the gradient of qkv as it was passed, without rotating it
// back.

// The trainer's own CPU kernels (kernels/attention.h), for fp32 and bf16.
bool CpuServes(const at::Tensor& qkv);
void CpuAttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                         at::Tensor& out, at::Tensor& lse);
void CpuAttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                          const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                          at::Tensor& dqkv);

// Attention that forms score matrices, for devices and element types without a fused kernel, and as the
// reference in tests. It works on one tile of scores of one kv head at a time. A tile has as many queries as
// fit into `tile_bytes`, but at least one, and the keys that any of them sees. Up to two more temporaries of
// a tile's size exist at a time.
void ReferenceAttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                               at::Tensor& out, at::Tensor& lse, int64_t tile_bytes = model::kScoreTileBytes);
void ReferenceAttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                                const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                                at::Tensor& dqkv, int64_t tile_bytes = model::kScoreTileBytes);

// cuDNN's attention, for bf16 on CUDA. It requires one document per sequence, a head_dim of at most 128 and a
// seq_len that is a multiple of 64. It supports no soft cap and no window that is shorter than the sequence.
// It is not used if deterministic algorithms are requested or UseCudnnAttention(false) was called
// (time_attention.h). Forward replaces `out` and `lse` by its results; lse has cuDNN's element order.
bool CudnnServes(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view);
void CudnnForward(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& out, at::Tensor& lse);
QueryKeyValue CudnnBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& out,
                            const at::Tensor& lse, const at::Tensor& dout);

// Flash attention (Dao 2023) over packed documents, for bf16 on CUDA if model::SupportsFlashAttention is
// true. Forward replaces `out` and `lse` by its results.
bool FlashServes(const AttentionShape& shape, const at::Tensor& qkv);
void FlashForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view, at::Tensor& out,
                  at::Tensor& lse);
QueryKeyValue FlashBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                            const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout);

}  // namespace trainctl::nn
