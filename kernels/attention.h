// Arguments and workspace of the CPU's attention kernels (TypedKernels::attention). A GPU uses LibTorch's
// kernels (lib/nn/attention_flash.cc, attention_cudnn.cc).
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainctl::kernels {

// The query heads that share one key/value head, within one document, for causal attention with grouped
// queries (Ainslie et al. 2023, arXiv 2305.13245). Pointers refer to elements of type T: the first token of
// the head, or of the first query head. The elements of a head are contiguous, and the query heads are
// adjacent.
struct AttentionHeads {
  int64_t tokens = 0;
  int64_t heads = 0;  // number of query heads that share the keys and values
  int64_t head_dim = 0;
  int64_t qkv_stride = 0;  // elements from token to token in queries, keys, values and their gradients
  int64_t out_stride = 0;  // elements from token to token in out and dout
  int64_t lse_stride = 0;  // elements from head to head in lse, whose tokens are contiguous
  const void* queries = nullptr;
  const void* keys = nullptr;
  const void* values = nullptr;
  float scale = 0;     // factor of the scores; 0 means 1 / sqrt(head_dim)
  int64_t window = 0;  // number of keys that a query sees at most, including its own; 0 means no limit
  float softcap = 0;   // if not 0, a scaled score s becomes softcap * tanh(s / softcap)
};

// The gradients of the same heads. dout has the strides of out, the others those of queries, keys and values.
struct AttentionGradients {
  const void* dout = nullptr;
  void* dqueries = nullptr;
  void* dkeys = nullptr;
  void* dvalues = nullptr;
};

// The size of a tile: the scores of at most this many queries and keys are computed at a time.
inline constexpr int64_t kAttentionQueries = 48;
inline constexpr int64_t kAttentionKeys = 128;
// A tile on the diagonal is processed in strips of this many queries, each with only the keys that its last
// query sees.
inline constexpr int64_t kAttentionStrip = 12;
// Rows in the workspace are padded to a multiple of this many elements: whole vectors on any processor.
inline constexpr int64_t kAttentionLanes = 16;
constexpr int64_t WholeLanes(int64_t count) {
  return (count + kAttentionLanes - 1) / kAttentionLanes * kAttentionLanes;
}

// The rows and columns of the largest tile in a document of `tokens` tokens.
constexpr int64_t AttentionTileRows(int64_t tokens) { return std::min(tokens, kAttentionQueries); }
constexpr int64_t AttentionTileColumns(int64_t tokens) {
  return std::min(WholeLanes(tokens), kAttentionKeys);
}

// The size of one call's workspace in fp32 elements, for at most `tokens` tokens. A multiple of 64 bytes, so
// that adjacent workspaces keep their alignment.
constexpr int64_t AttentionWorkspace(int64_t tokens, int64_t head_dim, bool backward) {
  const int64_t across = WholeLanes(tokens) * head_dim;  // one head as [head_dim, tokens]
  const int64_t along = tokens * WholeLanes(head_dim);   // one head as [tokens, head_dim]
  const int64_t row =
      (backward ? 3 : 2) * WholeLanes(head_dim) + (backward ? 2 : 1) * AttentionTileColumns(tokens) + 2;
  return WholeLanes(AttentionTileRows(tokens) * row + (backward ? 2 * across + 3 * along : across + along));
}

}  // namespace trainctl::kernels
