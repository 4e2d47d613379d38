// Which bucket is in which slot when: gathers ahead of their use, gradients from their first write to their
// reduction.

#include <algorithm>

#include "base/status.h"
#include "schedule/program_builder.h"

namespace trainctl::schedule {
namespace {

// What passes do to gradients and parameters. The checker says it again for itself (program_view.h): from
// here it would prove a mistake right.

// Parts of a bucket's gradient, as the passes write them.
constexpr uint8_t kInputPart = 1;   // with the input gradient
constexpr uint8_t kWeightPart = 2;  // by kBackwardWeight, or with the rest

uint8_t PartsWrittenBy(Op op) {
  if (op == Op::kLossAndGradient || op == Op::kBackward) return kInputPart | kWeightPart;
  if (op == Op::kBackwardInput) return kInputPart;
  return op == Op::kBackwardWeight ? kWeightPart : 0;
}

// Rows are looked up without a derivative that needs the table; weight gradients need activations alone.
bool ReadsParameters(Op op, int block) {
  return op != Op::kBackwardWeight && !(op == Op::kBackward && block == model::EmbeddingBlock());
}

bool IsBackward(Op op) { return op == Op::kBackward || op == Op::kBackwardInput; }

}  // namespace

// ---- parameters ---------------------------------------------------------------------------------------

void ProgramBuilder::PlanUses() {
  if (!shards_parameters()) return;
  uses_of_bucket_.resize(in_.ledger->buckets().size());
  Op before = Op::kForward;
  for (const Work& work : works_) {
    // A backward reads what its recompute has just read.
    const bool again = IsBackward(work.op) && before == Op::kRecompute;
    before = work.op;
    if (again || !ReadsParameters(work.op, work.block)) continue;
    for (int bucket : in_.ledger->buckets_of_block(work.block))
      uses_of_bucket_[static_cast<size_t>(bucket)].push_back(uses_.size());
    uses_.push_back(work.block);
  }
}

// Position in uses_ at or after `from` where `bucket` is next read; past the end when never.
size_t ProgramBuilder::NextUse(int bucket, size_t from) const {
  const std::vector<size_t>& uses = uses_of_bucket_[static_cast<size_t>(bucket)];
  const auto next = std::lower_bound(uses.begin(), uses.end(), from);
  return next == uses.end() ? uses_.size() : *next;
}

size_t ProgramBuilder::NextUse(const ParameterSlot& slot, size_t from) const {
  return slot.bucket < 0 ? uses_.size() + 1 : NextUse(slot.bucket, from);
}

// Makes the parameters of use `use` resident; `busy` are buckets that must stay (they are being computed
// with). `after`: compute instruction that the gather waits for, or -1.
void ProgramBuilder::GatherFor(size_t use, absl::Span<const int> busy, int after) {
  for (int bucket : in_.ledger->buckets_of_block(uses_[use])) {
    std::vector<ParameterSlot>& pool = parameter_pool_[KindOf(bucket)];
    const auto resident =
        std::find_if(pool.begin(), pool.end(), [&](const ParameterSlot& s) { return s.bucket == bucket; });
    if (resident != pool.end()) continue;
    // Evict what is needed again last (Belady), never what is in use.
    ParameterSlot* victim = nullptr;
    for (ParameterSlot& candidate : pool) {
      if (std::find(busy.begin(), busy.end(), candidate.bucket) != busy.end()) continue;
      if (victim == nullptr || NextUse(candidate, use) > NextUse(*victim, use)) victim = &candidate;
    }
    if (victim == nullptr) continue;  // gathered when its turn comes
    Instruction gather{.op = Op::kGather,
                       .stream = kGatherStream,
                       .bucket = bucket,
                       .slot = victim->slot,
                       .groups = {kGatherShardGroup}};
    if (victim->last_user >= 0) gather.waits.push_back(victim->last_user);
    if (after >= 0 && after != victim->last_user) gather.waits.push_back(after);
    *victim = {.slot = victim->slot, .bucket = bucket, .gather = Emit(std::move(gather))};
  }
}

// Fills parameter_slots and waits of a compute instruction, and gathers ahead for the one after it.
void ProgramBuilder::NeedParameters(Instruction& instruction) {
  if (in_.ledger == nullptr) return;
  const std::vector<int>& buckets = in_.ledger->buckets_of_block(instruction.block);
  instruction.parameter_slots.assign(buckets.size(), -1);
  if (!shards_parameters() || !ReadsParameters(instruction.op, instruction.block)) return;
  if (IsBackward(instruction.op) && !slots_of_recompute_.empty()) {
    instruction.parameter_slots = slots_of_recompute_;
    slots_of_recompute_.clear();
    return;
  }
  GatherFor(next_use_, {}, in_.options->setting.prefetch ? -1 : last_compute_);
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const ParameterSlot& state : parameter_pool_[KindOf(buckets[i])]) {
      if (state.bucket != buckets[i]) continue;
      instruction.parameter_slots[i] = state.slot;
      instruction.waits.push_back(state.gather);
    }
    TRAINCTL_CHECK(instruction.parameter_slots[i] >= 0);
  }
  if (in_.options->setting.prefetch && next_use_ + 1 < uses_.size()) GatherFor(next_use_ + 1, buckets, -1);
  ++next_use_;
  if (instruction.op == Op::kRecompute) slots_of_recompute_ = instruction.parameter_slots;
}

// ---- gradients ----------------------------------------------------------------------------------------

// After which work the gradient of a bucket is complete: of a micro-batch where gradients are sharded, else
// of the step.
void ProgramBuilder::PlanReductions() {
  if (in_.ledger == nullptr || !in_.step->has_update) return;
  const size_t num_buckets = in_.ledger->buckets().size();
  written_.assign(num_buckets, 0);
  reductions_left_.assign(num_buckets, 0);
  reduced_.assign(num_buckets, false);
  reduces_.assign(works_.size(), 0);
  const size_t rounds = shards_gradients() ? static_cast<size_t>(in_.step->num_micro_batches) : 1;
  std::vector<bool> seen(num_buckets * rounds, false);
  for (size_t i = works_.size(); i-- > 0;) {
    const Work& work = works_[i];
    if (PartsWrittenBy(work.op) == 0) continue;
    const std::vector<int>& buckets = in_.ledger->buckets_of_block(work.block);
    for (size_t k = 0; k < buckets.size(); ++k) {
      const size_t round = rounds > 1 ? static_cast<size_t>(work.micro_batch) : 0;
      const size_t at = static_cast<size_t>(buckets[k]) * rounds + round;
      if (seen[at]) continue;
      seen[at] = true;
      reduces_[i] |= static_cast<uint8_t>(1u << k);
      ++reductions_left_[static_cast<size_t>(buckets[k])];
    }
  }
}

// Gradient slots: claimed by the first backward that writes a bucket in this micro-batch, given back by its
// reduction.
void ProgramBuilder::NeedGradients(Instruction& instruction) {
  const uint8_t parts = PartsWrittenBy(instruction.op);
  if (in_.ledger == nullptr || !in_.step->has_update || parts == 0) return;
  for (int bucket : in_.ledger->buckets_of_block(instruction.block)) {
    GradientWrite write;
    if (shards_gradients()) write.slot = ClaimGradientSlot(bucket, instruction).slot;
    uint8_t& written = shards_gradients() ? written_in_slot_[{bucket, instruction.micro_batch}]
                                          : written_[static_cast<size_t>(bucket)];
    write.accumulate = (written & kInputPart) != 0;
    write.accumulate_weights = (written & kWeightPart) != 0;
    written |= parts;
    instruction.gradients.push_back(write);
  }
}

ProgramBuilder::GradientSlot& ProgramBuilder::ClaimGradientSlot(int bucket, Instruction& instruction) {
  const SlotKind kind = KindOf(bucket);
  std::vector<GradientSlot>& pool = gradient_pool_[kind];
  GradientSlot* claimed = nullptr;
  for (GradientSlot& slot : pool) {
    if (slot.bucket == bucket && slot.micro_batch == instruction.micro_batch) return slot;
    // The slot whose reduction was issued first is free first.
    if (slot.bucket < 0 && (claimed == nullptr || slot.last_reduce < claimed->last_reduce)) claimed = &slot;
  }
  // Gradients whose weights come much later each need a slot of their own meanwhile.
  if (claimed == nullptr) {
    pool.push_back({.slot = AddSlot(ValueKind::kGradientSlot, kind)});
    claimed = &pool.back();
  }
  claimed->bucket = bucket;
  claimed->micro_batch = instruction.micro_batch;
  if (claimed->last_reduce >= 0) instruction.waits.push_back(claimed->last_reduce);
  return *claimed;
}

void ProgramBuilder::ReduceAfter(size_t work, int index) {
  if (reduces_.empty() || reduces_[work] == 0) return;
  // Emit() moves instructions.
  const auto gradients = program_.instructions[static_cast<size_t>(index)].gradients;
  const int micro_batch = works_[work].micro_batch;
  const std::vector<int>& buckets = in_.ledger->buckets_of_block(works_[work].block);
  for (size_t k = 0; k < buckets.size(); ++k) {
    if ((reduces_[work] >> k & 1) == 0) continue;
    const int bucket = buckets[k];
    const bool first = !reduced_[static_cast<size_t>(bucket)];
    reduced_[static_cast<size_t>(bucket)] = true;
    Instruction reduce{.op = Op::kReduceGradient,
                       .stream = kReduceStream,
                       .bucket = bucket,
                       .micro_batch = micro_batch,
                       .slot = gradients[k].slot,
                       .first = first,
                       .waits = {index},
                       .groups = {kReduceShardGroup}};
    // The replicas' sums are added once a step.
    if (--reductions_left_[static_cast<size_t>(bucket)] == 0) reduce.groups.push_back(kReduceReplicateGroup);
    last_reduce_ = Emit(std::move(reduce));
    if (!shards_gradients()) continue;
    written_in_slot_.erase({bucket, micro_batch});
    for (GradientSlot& slot : gradient_pool_[KindOf(bucket)]) {
      if (slot.slot == gradients[k].slot) slot = {.slot = slot.slot, .last_reduce = last_reduce_};
    }
  }
}

}  // namespace trainctl::schedule
