#include "parallel/optimizer_copy.h"

#include <ATen/ATen.h>

#include "device/device.h"

namespace trainctl::parallel {

OptimizerCopy::OptimizerCopy(const ShardedState& state) : state_(state) {
  int64_t numel = 0;
  for (const layout::Bucket& bucket : state.ledger().buckets()) {
    offsets_.push_back(numel);
    numel += 3 * bucket.shard_numel;
  }
  const device::ScopedMemoryTag tag(device::Device::Cpu(), MemoryTag(schedule::Category::kBuffers));
  // Pinned, so that a device copies at the full rate of its link.
  storage_ = at::zeros({numel}, at::TensorOptions(at::kFloat).pinned_memory(!state.device().is_cpu()));
}

void OptimizerCopy::Take() {
  float* to = storage_.data_ptr<float>();
  for (const layout::Bucket& bucket : state_.ledger().buckets()) {
    for (const float* from :
         {state_.master(bucket.block), state_.exp_avg(bucket.block), state_.exp_avg_sq(bucket.block)}) {
      state_.device().CopyToHost(to, from, bucket.shard_numel * static_cast<int64_t>(sizeof(float)));
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
