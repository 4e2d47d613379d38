// What a class holds through the whole run, and the slots that gathered parameters and gradients under way
// share.

#include <algorithm>

#include "schedule/program_builder.h"

namespace trainctl::schedule {

int ProgramBuilder::AddValue(const Value& value) {
  program_.values.push_back(value);
  return static_cast<int>(program_.values.size()) - 1;
}

void ProgramBuilder::AddStorage() {
  AddPersistentValues();
  for (int bucket : own_buckets_) {
    int64_t& largest = largest_slot_[KindOf(bucket)];
    largest = std::max(largest, BucketAt(bucket).padded_numel);
  }
  for (int k = 0; k < kNumSlotKinds; ++k) {
    const auto kind = static_cast<SlotKind>(k);
    for (int i = 0; shards_parameters() && i < NumSlots(kind); ++i)
      parameter_pool_[k].push_back({.slot = AddSlot(ValueKind::kParameterSlot, kind)});
  }
  for (int k = 0; k < kNumSlotKinds; ++k) {
    const auto kind = static_cast<SlotKind>(k);
    for (int i = 0; shards_gradients() && i < NumSlots(kind); ++i)
      gradient_pool_[k].push_back({.slot = AddSlot(ValueKind::kGradientSlot, kind)});
  }
}

void ProgramBuilder::AddPersistentValues() {
  const BuildOptions& options = *in_.options;
  const auto add = [this](ValueKind kind, Category category, int64_t bytes) {
    AddValue({.kind = kind, .category = category, .persistent = true, .bytes = bytes});
  };
  const Types& types = options.setting.types;
  const int64_t master_bytes = DTypeBytes(types.master);
  int64_t full = 0, shard = 0;
  for (int bucket : own_buckets_) {
    full += BucketAt(bucket).padded_numel;
    shard += BucketAt(bucket).shard_numel;
  }
  // Parameters of one type are their own master; stage 3 casts from the master shard as it gathers.
  if (shards_parameters()) {
    add(ValueKind::kParameterShards, Category::kParameters, shard * master_bytes);
  } else {
    add(ValueKind::kParameters, Category::kParameters, full * DTypeBytes(types.compute));
    if (types.compute != types.master)
      add(ValueKind::kMasterParameters, Category::kOptimizer, shard * master_bytes);
  }
  add(ValueKind::kGradients, Category::kGradients,
      (shards_gradients() ? shard : full) * DTypeBytes(types.gradient));
  const optim::Optimizer& optimizer = *options.setting.optimizer;
  for (size_t k = 0; k < optimizer.states.size(); ++k) {
    AddValue({.kind = ValueKind::kOptimizerState,
              .category = Category::kOptimizer,
              .persistent = true,
              .micro_batch = static_cast<int>(k),
              .bytes = shard * DTypeBytes(optimizer.states[k].TypeFor(types.master))});
  }
  if (options.setting.checkpoint_copy && !options.setting.on_device)
    add(ValueKind::kCheckpointCopy, Category::kBuffers, shard * (master_bytes + optimizer.StateBytes()));
  add(ValueKind::kRotaryTables, Category::kBuffers, in_.blocks->rotary_bytes);
  if (options.setting.workspace_bytes > 0)
    add(ValueKind::kWorkspace, Category::kBuffers, options.setting.workspace_bytes);
  AddReceiveBuffer();
  AddTokens();
}

void ProgramBuilder::AddReceiveBuffer() {
  int64_t largest = 0;
  for (int bucket : own_buckets_) largest = std::max(largest, BucketAt(bucket).padded_numel);
  int64_t& bytes = program_.receive_buffer_bytes;
  if (in_.options->setting.on_device) {
    bytes = WholeShardBytes(largest);
  } else {
    for (layout::Axis axis : {layout::Axis::kDpShard, layout::Axis::kDpReplicate})
      bytes = std::max(bytes, PieceBytes(largest, in_.ledger->mesh().degree(axis)));
    for (int bucket : own_buckets_) {
      const int num_owners = static_cast<int>(in_.ledger->owners(bucket).size());
      bytes = std::max(bytes, PieceBytes(BucketAt(bucket).shard_numel, num_owners));
      for (int copies : in_.ledger->CopiesOfBucket(bucket))
        bytes = std::max(bytes, PieceBytes(in_.ledger->NumelOfCopies(bucket, copies), copies));
    }
  }
  if (bytes > 0) {
    AddValue({.kind = ValueKind::kReceiveBuffer,
              .category = Category::kBuffers,
              .persistent = true,
              .bytes = bytes});
  }
}

// A rank-ordered sum of `numel` elements over `degree` ranks receives a piece from each peer at a time.
int64_t ProgramBuilder::PieceBytes(int64_t numel, int degree) const {
  return model::SumScratchBytes(numel, DTypeBytes(in_.options->setting.types.sum), degree);
}

// A device's library overwrites its target, so what is to be added to a gradient shard arrives beside it.
int64_t ProgramBuilder::WholeShardBytes(int64_t numel) const {
  const int degree = in_.ledger->mesh().degree(layout::Axis::kDpShard);
  return shards_gradients() && degree > 1 ? numel / degree * DTypeBytes(in_.options->setting.types.sum) : 0;
}

// Tokens, targets and positions (int32) and the loss mask (a byte) of every micro-batch.
void ProgramBuilder::AddTokens() {
  const BuildOptions& options = *in_.options;
  if (!options.setting.on_device) return;
  constexpr int64_t kTokenBytes = 3 * sizeof(int32_t) + 1;
  const int64_t micro_batches = std::max<int64_t>(options.num_micro_batches, options.micro_batches_of_step);
  AddValue({.kind = ValueKind::kTokens,
            .category = Category::kBuffers,
            .persistent = true,
            .bytes = micro_batches * options.shape().tokens() * kTokenBytes});
}

ProgramBuilder::SlotKind ProgramBuilder::KindOf(int bucket) const {
  const int block = BucketAt(bucket).block;
  if (block == model::EmbeddingBlock()) return kEdgeSlots;
  if (block == in_.step->head()) return in_.blocks->tied ? kTiedHeadSlots : kEdgeSlots;
  return kLayerSlots;
}

// Layers have one slot more where there is a next one to fill meanwhile.
int ProgramBuilder::NumSlots(SlotKind kind) const {
  if (largest_slot_[kind] == 0) return 0;
  int num_layers = 0;
  for (int bucket : own_buckets_) num_layers += KindOf(bucket) == kLayerSlots ? 1 : 0;
  return kind == kLayerSlots && in_.options->setting.prefetch && num_layers > 1 ? 2 : 1;
}

int ProgramBuilder::AddSlot(ValueKind value_kind, SlotKind kind) {
  const bool holds_parameters = value_kind == ValueKind::kParameterSlot;
  std::vector<Slot>& slots = holds_parameters ? program_.parameter_slots : program_.gradient_slots;
  const Types& types = in_.options->setting.types;
  const int64_t element = DTypeBytes(holds_parameters ? types.compute : types.gradient);
  const int slot = static_cast<int>(slots.size());
  const int value = AddValue({.kind = value_kind,
                              .category = Category::kBuffers,
                              .persistent = true,
                              .micro_batch = slot,
                              .bytes = largest_slot_[kind] * element});
  slots.push_back({largest_slot_[kind], value});
  return slot;
}

}  // namespace trainctl::schedule
