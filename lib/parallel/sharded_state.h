// The tensors of one rank that live through a run: parameters, master copy, gradients, optimizer state, slots
// and buffers, placed by the ledger. Each kind is one flat tensor, and a bucket is a range of it.
//
// Not thread-safe, but different streams may use distinct buckets and slots at the same time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/group.h"
#include "device/device.h"
#include "layout/ledger.h"
#include "optim/optimizer.h"
#include "schedule/step.h"

namespace trainctl::parallel {

// The tag under which the counting allocator counts tensors of a category. Memory without a tag, such as that
// of a step's work, counts as activations.
constexpr int MemoryTag(schedule::Category category) { return 1 + static_cast<int>(category); }

// Fills `values` with the initial elements of a parameter, from element `begin` of the whole parameter on.
// The values come from a counter-based generator, so they are the same for every layout.
void DrawInitial(const model::Parameter& parameter, uint64_t seed, int64_t begin, absl::Span<float> values);

class ShardedState {
 public:
  // Allocates parameters, masters, gradients, optimizer state, and the slots and the receive buffer of
  // `program`, all filled with zeros. The executor allocates the other persistent values. `rank` is the
  // global rank. All pointers below refer to memory of `device`. `device`, `ledger` and `optimizer` must
  // outlive this. Of `types`, gradients and sums must have the accumulator type of the compute type. Masters
  // must have either that type or the compute type itself.
  ShardedState(const device::Device& device, const layout::Ledger& ledger, const schedule::Program& program,
               const schedule::Types& types, int rank, const optim::Optimizer& optimizer);

  const device::Device& device() const { return device_; }

  const layout::Ledger& ledger() const { return ledger_; }
  int rank() const { return rank_; }
  // The buckets that this rank holds, ascending. The functions below are only for these.
  const std::vector<int>& buckets() const { return buckets_; }
  DType compute_dtype() const { return compute_dtype_; }

  const optim::Optimizer& optimizer() const { return optimizer_; }
  // The optimizer's part of a bucket, ledger().optimizer_numel(bucket) elements: this rank's shard (ZeRO
  // stages 1-3) or the whole bucket.
  const optim::Parts& parts(int bucket) const { return parts_[index(bucket)]; }
  // The position of that part's first element in the bucket.
  int64_t first_element(int bucket) const {
    return shard_index_ * ledger_.buckets()[index(bucket)].shard_numel;
  }
  void* gradient_part(int bucket) const { return gradient_part_[index(bucket)]; }
  DType master_dtype() const { return master_dtype_; }
  // The type of gradients and of their sums over ranks.
  DType gradient_dtype() const { return AccumulatorOf(master_dtype_); }
  // Sets the master of elements [element, element + values.size()) of the optimizer's part of a bucket.
  // Rounds to nearest if masters are bf16. Blocks until `values` may be reused.
  void SetMaster(int bucket, int64_t element, absl::Span<const float> values);

  // parameters() is the whole bucket in the compute dtype (ZeRO stages 0-2). full_gradient() is its whole
  // gradient (stages 0-1). Null in the other stages.
  void* parameters(int bucket) const { return parameters_[index(bucket)]; }
  void* full_gradient(int bucket) const { return full_gradient_[index(bucket)]; }

  void* parameter_slot(int slot) const { return parameter_slot_tensors_[index(slot)].data_ptr(); }
  void* gradient_slot(int slot) const { return gradient_slot_tensors_[index(slot)].data_ptr(); }
  absl::Span<uint8_t> receive_buffer() const;

  std::vector<layout::ParameterRange> OwnRanges(int bucket) const {
    return ledger_.OptimizerRanges(bucket, rank_);
  }

  // Fills the masters with initial values (DrawInitial). The optimizer state stays 0.
  void Initialize(uint64_t seed);

  // Rounds the master to the compute dtype, into this rank's part of `whole_bucket`: parameters(bucket) in
  // stages 0-2, a parameter slot in stage 3.
  void CastMaster(int bucket, void* whole_bucket) const;
  // Computes all buckets' parameters in the compute dtype from the masters, with an all-gather. Collective
  // over dp_shard. Does nothing in stage 3.
  absl::Status MaterializeParameters(comm::Group& dp_shard) const;

 private:
  static size_t index(int i) { return static_cast<size_t>(i); }

  const device::Device& device_;
  const layout::Ledger& ledger_;
  DType compute_dtype_;
  DType master_dtype_;
  int rank_;
  int shard_index_;
  std::vector<int> buckets_;
  const optim::Optimizer& optimizer_;
  std::vector<at::Tensor> storage_;  // owns the memory of all pointers below
  std::vector<at::Tensor> parameter_slot_tensors_;
  std::vector<at::Tensor> gradient_slot_tensors_;
  at::Tensor receive_buffer_;
  std::vector<optim::Parts> parts_;
  std::vector<void*> gradient_part_, full_gradient_, parameters_;
};

}  // namespace trainctl::parallel
