// Keys and values of the tokens that one sequence has had, as one attention left them: a longer sequence
// computes those of its new tokens alone. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainctl::nn {

class KeyValueCache {
 public:
  // Room for `capacity` tokens, whose memory is taken with the first of them.
  explicit KeyValueCache(int64_t capacity) : capacity_(capacity) {}

  int64_t num_tokens() const { return num_tokens_; }

  // Those of the tokens that follow: [kv_heads, tokens, head_dim] each, positions applied. They must fit.
  void Append(const at::Tensor& keys, const at::Tensor& values);
  void Clear() { num_tokens_ = 0; }

  // [kv_heads, num_tokens, head_dim].
  at::Tensor keys() const;
  at::Tensor values() const;

 private:
  int64_t capacity_;
  int64_t num_tokens_ = 0;
  at::Tensor keys_, values_;  // [kv_heads, capacity, head_dim]
};

}  // namespace trainctl::nn
