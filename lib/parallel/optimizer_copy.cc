#include "parallel/optimizer_copy.h"

#include "device/aten.h"
#include "device/device.h"

namespace trainctl::parallel {

OptimizerCopy::OptimizerCopy(const ShardedState& state) : state_(state) {
  const optim::Optimizer& optimizer = state.optimizer();
  int64_t numel = 0;
  for (const int bucket : state.buckets()) numel += state.ledger().optimizer_numel(bucket);
  const int64_t bytes = numel * (DTypeBytes(state.master_dtype()) + optimizer.StateBytes());
  const device::ScopedMemoryTag tag(device::Device::Cpu(), MemoryTag(schedule::Category::kBuffers));
  // Pinned, so that a device copies at the full rate of its link.
  storage_ = at::zeros({bytes}, at::TensorOptions(at::kByte).pinned_memory(!state.device().is_cpu()));
  auto* at = static_cast<char*>(storage_.data_ptr());
  parts_.resize(state.ledger().buckets().size());
  for (const int bucket : state.buckets()) {
    const int64_t shard_numel = state.ledger().optimizer_numel(bucket);
    optim::Parts& parts = parts_[static_cast<size_t>(bucket)];
    parts.master = at;
    at += shard_numel * DTypeBytes(state.master_dtype());
    for (size_t k = 0; k < optimizer.states.size(); ++k) {
      parts.states[k] = at;
      at += shard_numel * DTypeBytes(optimizer.states[k].dtype);
    }
  }
}

void OptimizerCopy::Take() {
  const absl::Span<const optim::StateKind> states = state_.optimizer().states;
  for (const int bucket : state_.buckets()) {
    const int64_t shard_numel = state_.ledger().optimizer_numel(bucket);
    const optim::Parts& from = state_.parts(bucket);
    const optim::Parts& to = parts(bucket);
    state_.device().CopyToHost(to.master, from.master, shard_numel * DTypeBytes(state_.master_dtype()));
    for (size_t k = 0; k < states.size(); ++k) {
      state_.device().CopyToHost(to.states[k], from.states[k], shard_numel * DTypeBytes(states[k].dtype));
    }
  }
}

}  // namespace trainctl::parallel
