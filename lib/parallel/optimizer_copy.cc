#include "parallel/optimizer_copy.h"

#include <ATen/ATen.h>

#include "device/device.h"

namespace trainctl::parallel {

OptimizerCopy::OptimizerCopy(const ShardedState& state) : state_(state) {
  const optim::Optimizer& optimizer = state.optimizer();
  int64_t numel = 0;
  for (const layout::Bucket& bucket : state.ledger().buckets()) numel += bucket.shard_numel;
  const int64_t bytes = numel * (static_cast<int64_t>(sizeof(float)) + optimizer.StateBytes());
  const device::ScopedMemoryTag tag(device::Device::Cpu(), MemoryTag(schedule::Category::kBuffers));
  // Pinned, so that a device copies at the full rate of its link.
  storage_ = at::zeros({bytes}, at::TensorOptions(at::kByte).pinned_memory(!state.device().is_cpu()));
  auto* at = static_cast<char*>(storage_.data_ptr());
  for (const layout::Bucket& bucket : state.ledger().buckets()) {
    optim::Parts& parts = parts_.emplace_back();
    parts.master = reinterpret_cast<float*>(at);
    at += bucket.shard_numel * static_cast<int64_t>(sizeof(float));
    for (size_t k = 0; k < optimizer.states.size(); ++k) {
      parts.states[k] = at;
      at += bucket.shard_numel * DTypeBytes(optimizer.states[k].dtype);
    }
  }
}

void OptimizerCopy::Take() {
  const absl::Span<const optim::StateKind> states = state_.optimizer().states;
  for (const layout::Bucket& bucket : state_.ledger().buckets()) {
    const optim::Parts& from = state_.parts(bucket.id);
    const optim::Parts& to = parts(bucket.id);
    state_.device().CopyToHost(to.master, from.master,
                               bucket.shard_numel * static_cast<int64_t>(sizeof(float)));
    for (size_t k = 0; k < states.size(); ++k) {
      state_.device().CopyToHost(to.states[k], from.states[k],
                                 bucket.shard_numel * DTypeBytes(states[k].dtype));
    }
  }
}

}  // namespace trainctl::parallel
