// The tensors that live through a run: parameters, master copy, gradients, the optimizer's state, slots and
// buffers, laid out by the ledger. One flat tensor a kind; a bucket is a range of it.
//
// Threads: not thread safe, but distinct buckets and slots may be used by different streams.
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

// The tag under which the counting allocator keeps tensors of a category; the work of a step, which
// nobody tags, is activations.
constexpr int MemoryTag(schedule::Category category) { return 1 + static_cast<int>(category); }

// A parameter's elements from its `begin`-th on, as they are before the first step, from the counter-based
// generator: the same for every layout.
void DrawInitial(const model::Parameter& parameter, uint64_t seed, int64_t begin, absl::Span<float> values);

class ShardedState {
 public:
  // Allocates everything that `program` lists as persistent. `rank` is the global rank.
  // All pointers below are memory of `device`, which must outlive this.
  // Of `types` that of computing can be another than fp32, and with it that of masters; or all are fp64.
  ShardedState(const device::Device& device, const layout::Ledger& ledger, const schedule::Program& program,
               const schedule::Types& types, int rank, const optim::Optimizer& optimizer);

  const device::Device& device() const { return device_; }

  const layout::Ledger& ledger() const { return ledger_; }
  int rank() const { return rank_; }
  // The buckets that this rank holds, ascending; there is nothing below of the others.
  const std::vector<int>& buckets() const { return buckets_; }
  DType compute_dtype() const { return compute_dtype_; }

  const optim::Optimizer& optimizer() const { return optimizer_; }
  // The optimizer's part of a bucket: its shard (stages 1-3) or all of it, ledger().optimizer_numel elements.
  const optim::Parts& parts(int bucket) const { return parts_[index(bucket)]; }
  // Of the bucket, where that part begins.
  int64_t first_element(int bucket) const {
    return shard_index_ * ledger_.buckets()[index(bucket)].shard_numel;
  }
  void* gradient_part(int bucket) const { return gradient_part_[index(bucket)]; }
  DType master_dtype() const { return master_dtype_; }
  // Of gradients, and of what is summed of them.
  DType gradient_dtype() const { return AccumulatorOf(master_dtype_); }
  // Element `element` of the optimizer's part of a bucket = values[0], and so on: rounded to nearest where
  // the master is bf16. Waits.
  void SetMaster(int bucket, int64_t element, absl::Span<const float> values);

  // Stages 0-2: the whole bucket in the compute dtype. Stages 0-1: the whole gradient.
  void* parameters(int bucket) const { return parameters_[index(bucket)]; }
  void* full_gradient(int bucket) const { return full_gradient_[index(bucket)]; }

  void* parameter_slot(int slot) const { return parameter_slot_tensors_[index(slot)].data_ptr(); }
  void* gradient_slot(int slot) const { return gradient_slot_tensors_[index(slot)].data_ptr(); }
  absl::Span<uint8_t> receive_buffer() const;

  std::vector<layout::ParameterRange> OwnRanges(int bucket) const {
    return ledger_.OptimizerRanges(bucket, rank_);
  }

  // Fills the master (DrawInitial). State is 0.
  void Initialize(uint64_t seed);

  // Rounds the master into this rank's part of the whole bucket (stages 0-2), or of `slot` (stage 3).
  void CastMaster(int bucket, void* whole_bucket) const;
  // Stages 0-2, collective over dp_shard: compute parameters of all buckets from the masters.
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
  std::vector<at::Tensor> storage_;  // owns everything below
  std::vector<at::Tensor> parameter_slot_tensors_;
  std::vector<at::Tensor> gradient_slot_tensors_;
  at::Tensor receive_buffer_;
  std::vector<optim::Parts> parts_;
  std::vector<void*> gradient_part_, full_gradient_, parameters_;
};

}  // namespace trainctl::parallel
