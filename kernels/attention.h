// The CPU's attention: what a call is given, and the memory that it works in. A GPU has LibTorch's
// (lib/nn/attention_flash.cc).
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainctl::kernels {

// Causal attention within one document, of the query heads that share one head of keys and values (Ainslie et
// al. 2023, arXiv 2305.13245). Of elements of type T, behind void*: each names the first token, the first of
// the heads; a head's elements lie side by side, and so do the query heads.
struct AttentionHeads {
  int64_t tokens = 0;
  int64_t heads = 0;  // that share
  int64_t head_dim = 0;
  int64_t qkv_stride = 0;  // elements from token to token of queries, keys, values and their gradients
  int64_t out_stride = 0;  // of out and dout
  int64_t lse_stride = 0;  // from head to head of lse; its tokens lie side by side
  const void* queries = nullptr;
  const void* keys = nullptr;
  const void* values = nullptr;
};

struct AttentionGradients {
  const void* dout = nullptr;
  void* dqueries = nullptr;
  void* dkeys = nullptr;
  void* dvalues = nullptr;
};

// Scores that are there at once: of this many queries with this many keys.
inline constexpr int64_t kAttentionQueries = 48;
inline constexpr int64_t kAttentionKeys = 128;
// Queries of a tile on the diagonal are cut into strips, each with the keys that its last query sees.
inline constexpr int64_t kAttentionStrip = 12;
// Rows of what a call works in are whole vectors of any processor.
inline constexpr int64_t kAttentionLanes = 16;
constexpr int64_t WholeLanes(int64_t count) {
  return (count + kAttentionLanes - 1) / kAttentionLanes * kAttentionLanes;
}

// What is there of a tile within a document of so many tokens.
constexpr int64_t AttentionTileRows(int64_t tokens) { return std::min(tokens, kAttentionQueries); }
constexpr int64_t AttentionTileColumns(int64_t tokens) {
  return std::min(WholeLanes(tokens), kAttentionKeys);
}

// fp32 elements of the workspace of a call with `tokens` at most, aligned to 64 bytes.
constexpr int64_t AttentionWorkspace(int64_t tokens, int64_t head_dim, bool backward) {
  const int64_t across = WholeLanes(tokens) * head_dim;  // a head, its tokens side by side
  const int64_t along = tokens * WholeLanes(head_dim);   // a head, a row for each token
  const int64_t row =
      (backward ? 3 : 2) * WholeLanes(head_dim) + (backward ? 2 : 1) * AttentionTileColumns(tokens) + 2;
  return WholeLanes(AttentionTileRows(tokens) * row + (backward ? 2 * across + 3 * along : across + along));
}

}  // namespace trainctl::kernels
