#include "parallel/optimizer_copy.h"

#include <ATen/ATen.h>

#include <cstring>

#include "nn/counting_allocator.h"

namespace trainctl::parallel {

OptimizerCopy::OptimizerCopy(const ShardedState& state) : state_(state) {
  int64_t numel = 0;
  for (const sharding::Bucket& bucket : state.ledger().buckets()) {
    offsets_.push_back(numel);
    numel += 3 * bucket.shard_numel;
  }
  const nn::ScopedMemoryTag tag(MemoryTag(schedule::Category::kBuffers));
  storage_ = at::zeros({numel}, at::kFloat);
}

void OptimizerCopy::Take() {
  float* to = storage_.data_ptr<float>();
  for (const sharding::Bucket& bucket : state_.ledger().buckets()) {
    for (const float* from :
         {state_.master(bucket.block), state_.exp_avg(bucket.block), state_.exp_avg_sq(bucket.block)}) {
      std::memcpy(to, from, static_cast<size_t>(bucket.shard_numel) * sizeof(float));
      to += bucket.shard_numel;
    }
  }
}

OptimizerParts OptimizerCopy::parts(int bucket) const {
  float* at = storage_.data_ptr<float>() + offsets_[static_cast<size_t>(bucket)];
  const int64_t numel = state_.ledger().buckets()[static_cast<size_t>(bucket)].shard_numel;
  return {at, at + numel, at + 2 * numel};
}

}  // namespace trainctl::parallel
