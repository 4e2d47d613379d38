#include "parallel/sharded_state.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/counter_rng.h"
#include "base/life_signs.h"
#include "base/status.h"
#include "device/aten.h"
#include "nn/segment_run.h"

namespace trainctl::parallel {

void DrawInitial(const model::Parameter& parameter, uint64_t seed, int64_t begin, absl::Span<float> values) {
  if (parameter.init != model::Init::kNormal) {
    std::fill(values.begin(), values.end(), parameter.init == model::Init::kOnes ? 1.0f : 0.0f);
    return;
  }
  constexpr int64_t kOfOneThread = int64_t{1} << 14;
  const uint64_t stream = StreamOf(parameter.name);
  const float std_dev = static_cast<float>(parameter.init_std);
  at::parallel_for(0, static_cast<int64_t>(values.size()), kOfOneThread, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
      values[static_cast<size_t>(i)] = std_dev * RandomNormal(seed, stream, static_cast<uint64_t>(begin + i));
    }
  });
}

ShardedState::ShardedState(const device::Device& device, const layout::Ledger& ledger,
                           const schedule::Program& program, const schedule::Types& types, int rank,
                           const optim::Optimizer& optimizer)
    : device_(device),
      ledger_(ledger),
      compute_dtype_(types.compute),
      master_dtype_(types.master),
      rank_(rank),
      shard_index_(ledger.mesh().coordinate(rank, layout::Axis::kDpShard)),
      buckets_(ledger.BucketsOfOwner(ledger.mesh().coordinate(rank, layout::Axis::kPp))),
      optimizer_(optimizer) {
  TRAINCTL_CHECK_MSG(!(optimizer.whole_matrix && ledger.optimizer_sharded()), optimizer.name,
                     " needs whole matrices, and shards cut them");
  TRAINCTL_CHECK_MSG((types.master == AccumulatorOf(types.compute) || types.master == types.compute) &&
                         types.gradient == AccumulatorOf(types.compute) && types.sum == types.gradient,
                     "gradients are summed in fp32, or all is fp64");
  const at::ScalarType aten_dtype = nn::ToAten(compute_dtype_), aten_master = nn::ToAten(master_dtype_),
                       aten_gradient = nn::ToAten(types.gradient);
  const int64_t master_bytes = DTypeBytes(master_dtype_), gradient_bytes = DTypeBytes(types.gradient);
  int64_t full = 0, shard = 0;
  for (const int id : buckets_) {
    const layout::Bucket& bucket = ledger.buckets()[index(id)];
    full += bucket.padded_numel;
    shard += bucket.shard_numel;
  }
  using schedule::Category;
  const auto own = [&](int64_t numel, at::ScalarType dtype, Category category) {
    const device::ScopedMemoryTag tag(device_, MemoryTag(category));
    storage_.push_back(at::zeros({numel}, device_.Options(dtype)));
    return static_cast<char*>(storage_.back().data_ptr());
  };
  char* whole_parameters =
      ledger.parameters_sharded() ? nullptr : own(full, aten_dtype, Category::kParameters);
  // Of one type the whole parameters contain the master: it is this rank's part of them.
  const bool separate_master = ledger.parameters_sharded() || types.compute != types.master;
  // Stage 3 has no other parameters than the master shard.
  const Category master_category = ledger.parameters_sharded() ? Category::kParameters : Category::kOptimizer;
  char* masters = separate_master ? own(shard, aten_master, master_category) : nullptr;
  std::vector<char*> states;
  for (const optim::StateKind& state : optimizer.states)
    states.push_back(own(shard * DTypeBytes(state.TypeFor(master_dtype_)), at::kByte, Category::kOptimizer));
  char* gradients = own(ledger.gradients_sharded() ? shard : full, aten_gradient, Category::kGradients);

  const size_t num_buckets = ledger.buckets().size();
  parts_.resize(num_buckets);
  parameters_.resize(num_buckets);
  full_gradient_.resize(num_buckets);
  gradient_part_.resize(num_buckets);
  int64_t full_offset = 0, shard_offset = 0;
  for (const int id : buckets_) {
    const layout::Bucket& bucket = ledger.buckets()[index(id)];
    const int64_t own_offset = full_offset + shard_index_ * bucket.shard_numel;
    if (whole_parameters != nullptr)
      parameters_[index(id)] = whole_parameters + full_offset * DTypeBytes(compute_dtype_);
    optim::Parts& parts = parts_[index(id)];
    parts.master = separate_master ? masters + shard_offset * master_bytes
                                   : whole_parameters + own_offset * master_bytes;
    if (separate_master && whole_parameters != nullptr && compute_dtype_ == DType::kBF16)
      parts.copy = whole_parameters + own_offset * DTypeBytes(compute_dtype_);
    for (size_t k = 0; k < states.size(); ++k)
      parts.states[k] = states[k] + shard_offset * DTypeBytes(optimizer.states[k].TypeFor(master_dtype_));
    if (!ledger.gradients_sharded()) full_gradient_[index(id)] = gradients + full_offset * gradient_bytes;
    gradient_part_[index(id)] =
        gradients + (ledger.gradients_sharded() ? shard_offset : own_offset) * gradient_bytes;
    full_offset += bucket.padded_numel;
    shard_offset += bucket.shard_numel;
  }
  const device::ScopedMemoryTag tag(device_, MemoryTag(Category::kBuffers));
  for (const schedule::Slot& slot : program.parameter_slots)
    parameter_slot_tensors_.push_back(at::zeros({slot.numel}, device_.Options(aten_dtype)));
  for (const schedule::Slot& slot : program.gradient_slots)
    gradient_slot_tensors_.push_back(at::zeros({slot.numel}, device_.Options(aten_gradient)));
  receive_buffer_ = at::zeros({program.receive_buffer_bytes}, device_.Options(at::kByte));
}

void ShardedState::SetMaster(int bucket, int64_t element, absl::Span<const float> values) {
  const auto count = static_cast<int64_t>(values.size());
  const int64_t bytes = count * DTypeBytes(master_dtype_);
  char* const target = static_cast<char*>(parts(bucket).master) + element * DTypeBytes(master_dtype_);
  if (master_dtype_ == DType::kF32) return device_.CopyToDevice(target, values.data(), bytes);
  if (master_dtype_ == DType::kF64) {
    const std::vector<double> wide(values.begin(), values.end());
    return device_.CopyToDevice(target, wide.data(), bytes);
  }
  std::vector<uint16_t> rounded(values.size());
  kernels::Cpu().bf16.round(rounded.data(), values.data(), count);
  device_.CopyToDevice(target, rounded.data(), bytes);
}

absl::Span<uint8_t> ShardedState::receive_buffer() const {
  return {receive_buffer_.data_ptr<uint8_t>(), static_cast<size_t>(receive_buffer_.numel())};
}

void ShardedState::Initialize(uint64_t seed) {
  constexpr int64_t kAtOnce = int64_t{1} << 22;
  std::vector<float> values;
  for (const layout::HeldBox& held : ledger_.BoxesHeld(rank_)) {
    const model::Parameter& parameter = ledger_.inventory()[static_cast<size_t>(held.parameter)];
    const layout::Runs runs(held.box, layout::WholeBox(parameter.shape), held.box);
    for (int64_t r = 0; r < runs.size(); ++r) {
      const layout::Run run = runs[r];
      for (int64_t done = 0; done < run.count; done += kAtOnce) {
        Beat();
        const int64_t count = std::min(kAtOnce, run.count - done);
        values.resize(static_cast<size_t>(count));
        DrawInitial(parameter, seed, run.from + done, absl::MakeSpan(values));
        SetMaster(held.bucket, held.offset + run.to + done, values);
      }
    }
  }
}

void ShardedState::CastMaster(int bucket, void* whole_bucket) const {
  const int64_t numel = ledger_.buckets()[index(bucket)].shard_numel;
  char* target = static_cast<char*>(whole_bucket) + shard_index_ * numel * DTypeBytes(compute_dtype_);
  const void* const master = parts(bucket).master;
  if (target == master) return;
  if (compute_dtype_ == master_dtype_) return device_.Copy(target, master, numel * DTypeBytes(master_dtype_));
  device_.kernels().For(compute_dtype_).round(target, master, numel);
}

absl::Status ShardedState::MaterializeParameters(comm::Group& dp_shard) const {
  if (ledger_.parameters_sharded()) return absl::OkStatus();
  for (const int id : buckets_) {
    CastMaster(id, parameters(id));
    TRAINCTL_RETURN_IF_ERROR(
        dp_shard.AllGather(absl::StrCat("parameters/", id), parameters(id),
                           ledger_.buckets()[index(id)].shard_numel * DTypeBytes(compute_dtype_)));
  }
  return absl::OkStatus();
}

}  // namespace trainctl::parallel
