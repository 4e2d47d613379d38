// Gradients of a program: begun once, added to, complete when they are reduced, and each reduced as often as
// the step needs; their slots hold one bucket at a time.

#include "base/status.h"
#include "schedule/program_view.h"

namespace trainctl::schedule {
namespace {

class GradientChecker : private ProgramView {
 public:
  explicit GradientChecker(const ProgramView& view) : ProgramView(view) {}

  absl::StatusOr<std::vector<int>> Run() {
    buckets_.resize(ledger_->buckets().size());
    for (int bucket : ledger_->BucketsOfOwner(class_)) {
      BucketState& state = buckets_[static_cast<size_t>(bucket)];
      for (int m = 0; m < step_.num_micro_batches; ++m) {
        const int users = UsersHere(bucket, m);
        state.num_users += users;
        state.num_micro_batches += users > 0 ? 1 : 0;
      }
    }
    gradient_slots_.resize(program_.gradient_slots.size());
    for (int i = 0; i < size(); ++i) {
      if (PartsWrittenBy(At(i).op) != 0) TRAINCTL_RETURN_IF_ERROR(CheckGradientWrites(i));
      if (At(i).op == Op::kReduceGradient) TRAINCTL_RETURN_IF_ERROR(CheckReduce(i));
    }
    for (int bucket : ledger_->BucketsOfOwner(class_)) {
      const int reduced = buckets_[static_cast<size_t>(bucket)].num_reductions;
      if (reduced != ReductionsOf(bucket)) {
        return FailWhole("the gradient of bucket ", bucket, " is reduced ", reduced, " times, not ",
                         ReductionsOf(bucket));
      }
    }
    if (!gradients_.empty())
      return Fail(gradients_.back().writers.back(), "writes a gradient that nobody reduces");
    std::vector<int> last_reductions;
    for (const BucketState& bucket : buckets_) last_reductions.push_back(bucket.last_reduction);
    return last_reductions;
  }

 private:
  // A bucket's gradient from its first write to its reduction: of one micro-batch where gradients are
  // sharded.
  struct GradientState {
    int bucket = -1;
    int micro_batch = -1;  // sharded
    int slot = -1;         // sharded
    uint8_t written = 0;   // parts that are begun
    int num_parts = 0;     // written, all together
    std::vector<int> writers;
  };
  struct BucketState {
    int num_users = 0;          // blocks of this class that read it, over all micro-batches
    int num_micro_batches = 0;  // in which there are any
    int num_reductions = 0;
    int last_reduction = -1;
  };
  struct GradientSlotState {
    bool held = false;
    int last_reduction = -1;
  };

  int UsersHere(int bucket, int m) const {
    int count = 0;
    for (int block : BucketAt(bucket).used_by) count += step_.ClassOf(block, m) == class_ ? 1 : 0;
    return count;
  }
  int ReductionsOf(int bucket) const {
    return ledger_->gradients_sharded() ? buckets_[static_cast<size_t>(bucket)].num_micro_batches : 1;
  }

  // Blocks times two parts that a reduction sums up.
  int PartsExpected(int bucket, int micro_batch) const {
    return ledger_->gradients_sharded() ? 2 * UsersHere(bucket, micro_batch)
                                        : 2 * buckets_[static_cast<size_t>(bucket)].num_users;
  }

  GradientState* FindGradient(int bucket, int micro_batch) {
    for (GradientState& state : gradients_) {
      if (state.bucket == bucket && (!ledger_->gradients_sharded() || state.micro_batch == micro_batch))
        return &state;
    }
    return nullptr;
  }

  absl::Status CheckGradientWrites(int i) {
    const Instruction& instruction = At(i);
    const std::vector<int>& buckets = BucketsOf(instruction.block);
    const uint8_t parts = PartsWrittenBy(instruction.op);
    for (size_t k = 0; k < buckets.size(); ++k) {
      const int bucket = buckets[k];
      const GradientWrite& write = instruction.gradients[k];
      GradientState* state = FindGradient(bucket, instruction.micro_batch);
      const bool begins = state == nullptr;
      const uint8_t written = begins ? 0 : state->written;
      const uint8_t adds = static_cast<uint8_t>((write.accumulate ? kInputPart : 0) |
                                                (write.accumulate_weights ? kWeightPart : 0));
      if ((adds & parts) != (written & parts)) {
        return Fail(i,
                    (adds & parts) > (written & parts) ? "adds to a gradient that was not begun: bucket "
                                                       : "overwrites a gradient under way: bucket ",
                    bucket);
      }
      // What an instruction does not write it does not speak of, but for what is already there.
      if ((adds & ~parts & ~written) != 0)
        return Fail(i, "adds to a gradient that was not begun: bucket ", bucket);
      TRAINCTL_RETURN_IF_ERROR(CheckGradientSlot(i, bucket, write.slot, state));
      if (buckets_[static_cast<size_t>(bucket)].last_reduction >= 0 && !ledger_->gradients_sharded()) {
        return Fail(i, "writes bucket ", bucket, " after ",
                    Name(buckets_[static_cast<size_t>(bucket)].last_reduction));
      }
      if (begins) {
        gradients_.push_back({.bucket = bucket, .micro_batch = instruction.micro_batch, .slot = write.slot});
        state = &gradients_.back();
      }
      state->written |= parts;
      state->num_parts += parts == (kInputPart | kWeightPart) ? 2 : 1;
      state->writers.push_back(i);
    }
    return absl::OkStatus();
  }

  absl::Status CheckGradientSlot(int i, int bucket, int slot, const GradientState* state) {
    if (!ledger_->gradients_sharded())
      return slot == -1 ? absl::OkStatus() : Fail(i, "names a gradient slot but gradients are not sharded");
    if (!InRange(slot, gradient_slots_.size())) return Fail(i, "has no gradient slot for bucket ", bucket);
    if (program_.gradient_slots[static_cast<size_t>(slot)].numel < BucketAt(bucket).padded_numel)
      return Fail(i, "does not fit gradient slot ", slot);
    if (state != nullptr) {
      if (state->slot != slot)
        return Fail(i, "adds in gradient slot ", slot, ", but bucket ", bucket, " is elsewhere");
      return absl::OkStatus();
    }
    GradientSlotState& held = gradient_slots_[static_cast<size_t>(slot)];
    if (held.held) return Fail(i, "overwrites gradient slot ", slot, ", which holds another bucket");
    if (held.last_reduction >= 0 && !Before(held.last_reduction, i))
      return Fail(i, "may overwrite gradient slot ", slot, " while ", Name(held.last_reduction), " reads it");
    held.held = true;
    return absl::OkStatus();
  }

  absl::Status CheckReduce(int i) {
    const Instruction& reduce = At(i);
    BucketState& bucket = buckets_[static_cast<size_t>(reduce.bucket)];
    GradientState* state = FindGradient(reduce.bucket, reduce.micro_batch);
    const int expected = PartsExpected(reduce.bucket, reduce.micro_batch);
    const int parts = state == nullptr ? 0 : state->num_parts;
    if (state == nullptr || parts != expected)
      return Fail(i, "comes after ", parts, " of ", expected, " parts");
    for (int writer : state->writers) {
      if (!Before(writer, i)) return Fail(i, "does not wait for ", Name(writer));
    }
    if (!ledger_->gradients_sharded() && At(state->writers.back()).micro_batch != reduce.micro_batch)
      return Fail(i, "names another micro-batch than its last writer");
    if (reduce.first != (bucket.num_reductions == 0)) {
      return Fail(i, reduce.first ? "overwrites what was reduced before"
                                  : "adds to nothing: it is the first of the step");
    }
    const bool is_last = bucket.num_reductions + 1 == ReductionsOf(reduce.bucket);
    if (is_last != (reduce.groups.size() > 1)) {
      return Fail(i, is_last ? "is the last of the step but does not sum over dp_replicate"
                             : "sums over dp_replicate but is not the last of the step");
    }
    if (ledger_->gradients_sharded()) {
      if (reduce.slot != state->slot) return Fail(i, "reads a gradient slot that does not hold its bucket");
      gradient_slots_[static_cast<size_t>(reduce.slot)] = {.held = false, .last_reduction = i};
    } else if (reduce.slot != -1) {
      return Fail(i, "names a gradient slot but gradients are not sharded");
    }
    *state = gradients_.back();
    gradients_.pop_back();
    ++bucket.num_reductions;
    bucket.last_reduction = i;
    return absl::OkStatus();
  }

  std::vector<GradientState> gradients_;  // under way
  std::vector<BucketState> buckets_;      // by bucket
  std::vector<GradientSlotState> gradient_slots_;
};

}  // namespace

absl::StatusOr<std::vector<int>> CheckGradients(const ProgramView& view) {
  return GradientChecker(view).Run();
}

}  // namespace trainctl::schedule
