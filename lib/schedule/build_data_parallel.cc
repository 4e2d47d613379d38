// The builder for DDP and ZeRO-1/2/3, with accumulation, recompute and prefetch.

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/schedule.h"

namespace trainctl::schedule {
namespace {

constexpr int64_t kFp32Bytes = 4;

// Buckets that may share a slot: the layers among themselves, the embedding and an untied head.
enum SlotKind { kLayerSlots, kEdgeSlots, kTiedHeadSlots, kNumSlotKinds };

class DataParallelBuilder {
 public:
  DataParallelBuilder(const model::ModelSpec& spec, const layout::Ledger& ledger, const BuildOptions& options)
      : spec_(spec), ledger_(ledger), options_(options), head_(model::HeadBlock(spec)) {
    schedule_.zero_stage = ledger.zero_stage();
    schedule_.num_micro_batches = options.num_micro_batches;
    const model::SegmentOptions segment_options{options.shape, options.compute_dtype, options.threads,
                                                options.on_device};
    for (int block = 0; block <= head_; ++block) {
      // The layers are alike: the first stands for all.
      if (block > 1 && block < head_) {
        memory_.push_back(memory_[1]);
        continue;
      }
      memory_.push_back(
          model::Analyze(model::BuildSegment(spec, ledger.inventory(), block, segment_options)));
    }
  }

  Schedule Build() {
    AddStorage();
    PlanUses(/*with_backward=*/true);
    Emit({.op = Op::kCountLossTokens});
    for (int m = 0; m < options_.num_micro_batches; ++m) BuildMicroBatch(m);
    BuildUpdate();
    return std::move(schedule_);
  }

  Schedule BuildForward() {
    AddStorage();
    PlanUses(/*with_backward=*/false);
    for (int m = 0; m < options_.num_micro_batches; ++m) BuildForwardOf(m);
    return std::move(schedule_);
  }

 private:
  // A pool of interchangeable slots of one kind.
  struct SlotState {
    int slot = -1;
    int bucket = -1;       // what it holds
    int gather = -1;       // instruction that filled it
    int last_user = -1;    // last compute instruction that touched it
    int last_reduce = -1;  // gradient slots: the reduction that empties it
  };
  using Pool = std::map<int, std::vector<SlotState>>;  // by SlotKind

  // ---- values -------------------------------------------------------------------------------

  void AddStorage() {
    AddPersistentValues();
    if (ledger_.parameters_sharded())
      AddSlots(schedule_.parameter_slots, parameter_pool_, DTypeBytes(options_.compute_dtype),
               "gathered parameters");
    if (ledger_.gradients_sharded())
      AddSlots(schedule_.gradient_slots, gradient_pool_, kFp32Bytes, "gradient under way");
  }

  int AddValue(std::string name, Category category, int64_t bytes, bool persistent = false) {
    schedule_.values.push_back({std::move(name), category, bytes, persistent});
    return static_cast<int>(schedule_.values.size()) - 1;
  }

  void AddPersistentValues() {
    const bool mixed = options_.compute_dtype != DType::kF32;
    int64_t full = 0, shard = 0;
    for (const layout::Bucket& bucket : ledger_.buckets()) {
      full += bucket.padded_numel;
      shard += bucket.shard_numel;
    }
    // In fp32 the parameters are their own master; stage 3 casts from the master shard as it gathers.
    if (ledger_.parameters_sharded()) {
      AddValue("parameter shards", Category::kParameters, shard * kFp32Bytes, true);
    } else {
      AddValue("parameters", Category::kParameters, full * DTypeBytes(options_.compute_dtype), true);
      if (mixed) AddValue("master parameters", Category::kOptimizer, shard * kFp32Bytes, true);
    }
    AddValue("gradients", Category::kGradients, (ledger_.gradients_sharded() ? shard : full) * kFp32Bytes,
             true);
    const optim::Optimizer& optimizer = *options_.optimizer;
    for (const optim::StateKind& state : optimizer.states)
      AddValue(std::string(state.meaning), Category::kOptimizer, shard * DTypeBytes(state.dtype), true);
    if (options_.checkpoint_copy && !options_.on_device)
      AddValue("checkpoint copy", Category::kBuffers, shard * (kFp32Bytes + optimizer.StateBytes()), true);
    const int64_t rope_bytes = 2 * options_.shape.seq_len * (spec_.head_dim / 2) * kFp32Bytes;
    AddValue("rotary tables", Category::kBuffers, rope_bytes, true);
    AddReceiveBuffer();
    AddTokens();
  }

  void AddReceiveBuffer() {
    int64_t largest = 0;
    for (const layout::Bucket& bucket : ledger_.buckets()) largest = std::max(largest, bucket.padded_numel);
    int64_t& bytes = schedule_.receive_buffer_bytes;
    if (options_.on_device) {
      bytes = WholeShardBytes(largest);
    } else {
      for (layout::Axis axis : {layout::Axis::kDpShard, layout::Axis::kDpReplicate})
        bytes = std::max(bytes, PieceBytes(largest, ledger_.mesh().degree(axis)));
    }
    if (bytes > 0) AddValue("receive buffer", Category::kBuffers, bytes, true);
  }

  // A rank-ordered sum of `numel` fp32 elements over `degree` ranks receives a piece from each peer at a
  // time.
  static int64_t PieceBytes(int64_t numel, int degree) {
    if (degree <= 1) return 0;
    const int64_t chunk_bytes = (numel + degree - 1) / degree * kFp32Bytes;
    return (degree - 1) * std::min(chunk_bytes, kReducePieceBytes);
  }

  // A device's library overwrites its target, so what is to be added to a gradient shard arrives beside it.
  int64_t WholeShardBytes(int64_t numel) const {
    const int degree = ledger_.mesh().degree(layout::Axis::kDpShard);
    return ledger_.gradients_sharded() && degree > 1 ? numel / degree * kFp32Bytes : 0;
  }

  // Tokens, targets and positions (int32) and the loss mask (a byte) of every micro-batch.
  void AddTokens() {
    if (!options_.on_device) return;
    constexpr int64_t kTokenBytes = 3 * sizeof(int32_t) + 1;
    const int64_t micro_batches =
        std::max<int64_t>(options_.num_micro_batches, options_.micro_batches_of_step);
    AddValue("tokens", Category::kBuffers, micro_batches * options_.shape.tokens() * kTokenBytes, true);
  }

  // ---- slots --------------------------------------------------------------------------------

  SlotKind KindOf(int bucket) const {
    if (bucket == model::EmbeddingBlock()) return kEdgeSlots;
    if (bucket == head_) return spec_.tie_embeddings ? kTiedHeadSlots : kEdgeSlots;
    return kLayerSlots;
  }

  void AddSlots(std::vector<Slot>& slots, Pool& pool, int64_t bytes_per_element, const std::string& name) {
    int64_t largest[kNumSlotKinds] = {0, 0, 0};
    for (const layout::Bucket& bucket : ledger_.buckets()) {
      int64_t& current = largest[KindOf(bucket.block)];
      current = std::max(current, bucket.padded_numel);
    }
    for (int kind = 0; kind < kNumSlotKinds; ++kind) {
      if (largest[kind] == 0) continue;
      const int count = kind == kLayerSlots && options_.prefetch && spec_.layers > 1 ? 2 : 1;
      for (int i = 0; i < count; ++i) {
        const int index = static_cast<int>(slots.size());
        const int value = AddValue(absl::StrCat(name, " ", index), Category::kBuffers,
                                   largest[kind] * bytes_per_element, true);
        slots.push_back({largest[kind], value});
        pool[kind].push_back({.slot = index});
      }
    }
  }

  // ---- which block needs which parameters, in order -----------------------------------------

  // One entry per compute instruction that reads parameters (the embedding's backward reads none).
  void PlanUses(bool with_backward) {
    if (!ledger_.parameters_sharded()) return;
    for (int m = 0; m < options_.num_micro_batches; ++m) {
      for (int block = 0; block <= head_; ++block) uses_.push_back(block);
      for (int block = head_ - 1; with_backward && block > 0; --block) uses_.push_back(block);
    }
  }

  // Position in uses_ at or after `from` where `bucket` is next read; past the end when never.
  size_t NextUse(int bucket, size_t from) const {
    for (size_t i = from; i < uses_.size(); ++i) {
      const std::vector<int>& needed = ledger_.buckets_of_block(uses_[i]);
      if (std::find(needed.begin(), needed.end(), bucket) != needed.end()) return i;
    }
    return uses_.size();
  }

  // Makes the parameters of use `position` resident; `busy` is a bucket that must stay (it is being
  // computed with). `after`: compute instruction that the gather waits for, or -1.
  void GatherFor(size_t position, const std::vector<int>& busy, int after) {
    for (int bucket : ledger_.buckets_of_block(uses_[position])) {
      std::vector<SlotState>& pool = parameter_pool_[KindOf(bucket)];
      const auto resident =
          std::find_if(pool.begin(), pool.end(), [&](const SlotState& s) { return s.bucket == bucket; });
      if (resident != pool.end()) continue;
      // Evict what is needed again last (Belady), never what is in use.
      SlotState* victim = nullptr;
      for (SlotState& candidate : pool) {
        if (std::find(busy.begin(), busy.end(), candidate.bucket) != busy.end()) continue;
        if (victim == nullptr || NextUseOfSlot(candidate, position) > NextUseOfSlot(*victim, position))
          victim = &candidate;
      }
      if (victim == nullptr) continue;  // gathered when its turn comes
      Instruction gather{
          .op = Op::kGather, .stream = StreamId::kGather, .bucket = bucket, .slot = victim->slot};
      if (victim->last_user >= 0) gather.waits.push_back(victim->last_user);
      if (after >= 0 && after != victim->last_user) gather.waits.push_back(after);
      *victim = {.slot = victim->slot, .bucket = bucket, .gather = Emit(std::move(gather))};
    }
  }

  size_t NextUseOfSlot(const SlotState& state, size_t from) const {
    return state.bucket < 0 ? uses_.size() + 1 : NextUse(state.bucket, from);
  }

  // Fills parameter_slots and waits of a compute instruction, and prefetches for the one after it.
  // Call Used() with its index once it is emitted.
  void NeedParameters(Instruction& instruction) {
    const std::vector<int>& buckets = ledger_.buckets_of_block(instruction.block);
    instruction.parameter_slots.assign(buckets.size(), -1);
    if (!ledger_.parameters_sharded()) return;
    GatherFor(next_use_, {}, options_.prefetch ? -1 : last_compute_);
    for (size_t i = 0; i < buckets.size(); ++i) {
      for (const SlotState& state : parameter_pool_[KindOf(buckets[i])]) {
        if (state.bucket != buckets[i]) continue;
        instruction.parameter_slots[i] = state.slot;
        instruction.waits.push_back(state.gather);
      }
      TRAINCTL_CHECK(instruction.parameter_slots[i] >= 0);
    }
    if (options_.prefetch && next_use_ + 1 < uses_.size()) GatherFor(next_use_ + 1, buckets, -1);
    ++next_use_;
  }

  void UsedParameters(const Instruction& instruction, int index) {
    for (int slot : instruction.parameter_slots) {
      for (auto& [kind, pool] : parameter_pool_) {
        for (SlotState& state : pool) {
          if (slot >= 0 && state.slot == slot) state.last_user = index;
        }
      }
    }
  }

  // Gradient slots: claimed by the first backward that writes a bucket in this micro-batch, given
  // back by its reduction.
  void NeedGradients(Instruction& instruction) {
    const std::vector<int>& buckets = ledger_.buckets_of_block(instruction.block);
    instruction.gradient_slots.assign(buckets.size(), -1);
    instruction.accumulate.assign(buckets.size(), false);
    for (size_t i = 0; i < buckets.size(); ++i) {
      const int bucket = buckets[i];
      if (!ledger_.gradients_sharded()) {
        instruction.accumulate[i] = written_[bucket]++ > 0;
        continue;
      }
      std::vector<SlotState>& pool = gradient_pool_[KindOf(bucket)];
      auto held =
          std::find_if(pool.begin(), pool.end(), [&](const SlotState& s) { return s.bucket == bucket; });
      instruction.accumulate[i] = held != pool.end();
      if (held == pool.end()) {
        // The slot whose reduction was issued first is free first.
        held = pool.end();
        for (auto it = pool.begin(); it != pool.end(); ++it) {
          if (it->bucket < 0 && (held == pool.end() || it->last_reduce < held->last_reduce)) held = it;
        }
        TRAINCTL_CHECK_MSG(held != pool.end(), "no gradient slot is free for bucket ", bucket);
        held->bucket = bucket;
        if (held->last_reduce >= 0) instruction.waits.push_back(held->last_reduce);
      }
      instruction.gradient_slots[i] = held->slot;
    }
  }

  // ---- instructions -------------------------------------------------------------------------

  int Emit(Instruction instruction) {
    const int index = static_cast<int>(schedule_.instructions.size());
    if (instruction.stream == StreamId::kCompute) last_compute_ = index;
    schedule_.instructions.push_back(std::move(instruction));
    return index;
  }

  int EmitCompute(Instruction instruction) {
    const int index = Emit(instruction);
    UsedParameters(instruction, index);
    return index;
  }

  void BuildMicroBatch(int m) {
    const bool recompute = options_.recompute == layout::Recompute::kFull;
    std::vector<int> hidden(static_cast<size_t>(head_) + 1, -1);  // input of each block
    std::vector<int> saved(static_cast<size_t>(head_) + 1, -1);
    for (int block = 0; block < head_; ++block) {
      Instruction forward{.op = Op::kForward, .block = block, .micro_batch = m};
      const model::SegmentMemory& memory = memory_[static_cast<size_t>(block)];
      const bool keep = !(recompute && block > 0);
      forward.keep = keep;
      NeedParameters(forward);
      if (block > 0) forward.reads.push_back(hidden[static_cast<size_t>(block)]);
      hidden[static_cast<size_t>(block) + 1] =
          AddValue(absl::StrCat("hidden ", block, "/", m), Category::kActivations, memory.output_bytes);
      forward.writes.push_back(hidden[static_cast<size_t>(block) + 1]);
      if (keep && memory.saved_bytes > 0) saved[static_cast<size_t>(block)] = AddSaved(forward, m);
      forward.peak_extra_bytes = keep ? memory.forward_peak : memory.inference_peak;
      EmitCompute(std::move(forward));
    }

    Instruction loss{.op = Op::kLossAndGradient, .block = head_, .micro_batch = m};
    NeedParameters(loss);
    NeedGradients(loss);
    loss.reads = {hidden[static_cast<size_t>(head_)]};
    loss.frees = {hidden[static_cast<size_t>(head_)]};
    int gradient = AddGradientValue(head_, m);
    loss.writes = {gradient};
    loss.peak_extra_bytes = memory_[static_cast<size_t>(head_)].loss_peak;
    const int loss_index = EmitCompute(loss);
    ReduceAfter(loss, loss_index, m);

    for (int block = head_ - 1; block >= 0; --block) {
      const model::SegmentMemory& memory = memory_[static_cast<size_t>(block)];
      Instruction backward{.op = Op::kBackward, .block = block, .micro_batch = m};
      if (block > 0) NeedParameters(backward);
      if (block == 0) backward.parameter_slots.assign(ledger_.buckets_of_block(0).size(), -1);
      if (recompute && block > 0) {
        Instruction again{.op = Op::kRecompute,
                          .block = block,
                          .micro_batch = m,
                          .parameter_slots = backward.parameter_slots};
        again.waits = std::exchange(backward.waits, {});
        again.reads = {hidden[static_cast<size_t>(block)]};
        if (memory.saved_bytes > 0) saved[static_cast<size_t>(block)] = AddSaved(again, m);
        // The output is formed again and dropped at once.
        again.peak_extra_bytes = memory.forward_peak;
        EmitCompute(std::move(again));
      }
      NeedGradients(backward);
      backward.reads = {gradient};
      backward.frees = {gradient};
      if (block > 0) {
        backward.reads.push_back(hidden[static_cast<size_t>(block)]);
        backward.frees.push_back(hidden[static_cast<size_t>(block)]);
        gradient = AddGradientValue(block, m);
        backward.writes = {gradient};
      }
      if (saved[static_cast<size_t>(block)] >= 0) {
        backward.reads.push_back(saved[static_cast<size_t>(block)]);
        backward.frees.push_back(saved[static_cast<size_t>(block)]);
      }
      backward.peak_extra_bytes = memory.backward_peak;
      const int index = EmitCompute(backward);
      ReduceAfter(backward, index, m);
    }
  }

  void BuildForwardOf(int m) {
    int hidden = -1;
    for (int block = 0; block <= head_; ++block) {
      const model::SegmentMemory& memory = memory_[static_cast<size_t>(block)];
      Instruction forward{
          .op = block == head_ ? Op::kLoss : Op::kForward, .block = block, .micro_batch = m, .keep = false};
      NeedParameters(forward);
      if (block > 0) forward.reads = forward.frees = {hidden};
      if (block < head_) {
        hidden =
            AddValue(absl::StrCat("hidden ", block, "/", m), Category::kActivations, memory.output_bytes);
        forward.writes = {hidden};
      }
      forward.peak_extra_bytes = memory.inference_peak;
      EmitCompute(std::move(forward));
    }
  }

  int AddSaved(Instruction& forward, int m) {
    const int value = AddValue(absl::StrCat("saved ", forward.block, "/", m), Category::kActivations,
                               memory_[static_cast<size_t>(forward.block)].saved_bytes);
    forward.writes.push_back(value);
    return value;
  }

  // The gradient of a block's input. It usually takes over the storage of the gradient before it,
  // which is freed by the same instruction, so that the sum comes out right.
  int AddGradientValue(int block, int m) {
    const int64_t bytes = options_.shape.tokens() * spec_.hidden * DTypeBytes(options_.compute_dtype);
    return AddValue(absl::StrCat("gradient of hidden ", block, "/", m), Category::kActivations, bytes);
  }

  // Reduces each bucket whose last gradient of this micro-batch (or step) was just written.
  void ReduceAfter(const Instruction& backward, int index, int m) {
    const bool last = m + 1 == options_.num_micro_batches;
    for (int bucket : ledger_.buckets_of_block(backward.block)) {
      const std::vector<int>& users = ledger_.buckets()[static_cast<size_t>(bucket)].used_by;
      const int last_writer = users.empty() ? bucket : *std::min_element(users.begin(), users.end());
      if (backward.block != last_writer) continue;
      if (!ledger_.gradients_sharded() && !last) continue;
      Instruction reduce{.op = Op::kReduceGradient,
                         .stream = StreamId::kReduce,
                         .bucket = bucket,
                         .micro_batch = m,
                         .first = m == 0 || !ledger_.gradients_sharded(),
                         .last = last,
                         .waits = {index}};
      SlotState* held = nullptr;
      if (ledger_.gradients_sharded()) {
        for (SlotState& state : gradient_pool_[KindOf(bucket)]) {
          if (state.bucket == bucket) held = &state;
        }
        reduce.slot = held->slot;
      }
      const int reduced = Emit(std::move(reduce));
      if (held != nullptr) *held = {.slot = held->slot, .last_reduce = reduced};
      last_reduce_ = reduced;
    }
  }

  void BuildUpdate() {
    // Streams keep list order, so the last reduction stands for all of them.
    Emit({.op = Op::kReduceLoss});
    Emit({.op = Op::kGradNorm, .waits = {last_reduce_}});
    for (const layout::Bucket& bucket : ledger_.buckets()) {
      const int step = Emit({.op = Op::kOptimizerStep, .bucket = bucket.block});
      if (ledger_.optimizer_sharded() && !ledger_.parameters_sharded()) {
        Emit(
            {.op = Op::kGatherUpdated, .stream = StreamId::kGather, .bucket = bucket.block, .waits = {step}});
      }
    }
  }

  const model::ModelSpec& spec_;
  const layout::Ledger& ledger_;
  const BuildOptions& options_;
  const int head_;
  std::vector<model::SegmentMemory> memory_;
  Schedule schedule_;
  Pool parameter_pool_;
  Pool gradient_pool_;
  std::vector<int> uses_;
  size_t next_use_ = 0;
  std::map<int, int> written_;
  int last_compute_ = -1;
  int last_reduce_ = -1;
};

}  // namespace

Schedule BuildDataParallel(const model::ModelSpec& spec, const layout::Ledger& ledger,
                           const BuildOptions& options) {
  return DataParallelBuilder(spec, ledger, options).Build();
}

Schedule BuildForwardOnly(const model::ModelSpec& spec, const layout::Ledger& ledger,
                          const BuildOptions& options) {
  return DataParallelBuilder(spec, ledger, options).BuildForward();
}

}  // namespace trainctl::schedule
