// The keys and values that one attention layer has computed for the tokens of a sequence. With them,
// extending the sequence computes keys and values only for the new tokens. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainctl::nn {

class KeyValueCache {
 public:
  // Creates an empty cache for up to `capacity` tokens. The first Append allocates its memory.
  explicit KeyValueCache(int64_t capacity) : capacity_(capacity) {}

  int64_t num_tokens() const { return num_tokens_; }

  // Appends the keys and values of the next tokens, each [kv_heads, tokens, head_dim], with RoPE already
  // applied. They must fit the capacity.
  void Append(const at::Tensor& keys, const at::Tensor& values);
  void Clear() { num_tokens_ = 0; }

  // Views of shape [kv_heads, num_tokens, head_dim]. Call them only after the first Append.
  at::Tensor keys() const;
  at::Tensor values() const;

 private:
  int64_t capacity_;
  int64_t num_tokens_ = 0;
  at::Tensor keys_, values_;  // [kv_heads, capacity, head_dim]
};

}  // namespace trainctl::nn
