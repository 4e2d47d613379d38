// The first part of the proof of a program: every index is in range, every instruction on its stream and with
// its groups. All other parts rely on it.

#include "base/status.h"
#include "schedule/program_view.h"

namespace trainctl::schedule {
namespace {

bool NamesBucket(Op op) {
  return op == Op::kGather || op == Op::kReduceGradient || op == Op::kSumCopies || op == Op::kGatherUpdated ||
         op == Op::kOptimizerStep;
}

class ShapeChecker : private ProgramView {
 public:
  explicit ShapeChecker(const ProgramView& view) : ProgramView(view) {}

  absl::Status Run() const {
    if (program_.num_micro_batches != step_.num_micro_batches)
      return FailWhole("has ", program_.num_micro_batches, " micro-batches of ", step_.num_micro_batches);
    if (program_.streams.size() < kNumDataStreams) return FailWhole("lacks streams");
    for (size_t s = kNumDataStreams; s < program_.streams.size(); ++s) {
      for (size_t other = kNumDataStreams; other < s; ++other) {
        const Stream &a = program_.streams[s], &b = program_.streams[other];
        if (a.peer == b.peer && a.sends == b.sends)
          return FailWhole("has two streams '", a.name, "', whose messages could overtake each other");
      }
    }
    for (const std::vector<Slot>* slots : {&program_.parameter_slots, &program_.gradient_slots}) {
      for (const Slot& slot : *slots) {
        if (!InRange(slot.value, program_.values.size()) || !ValueAt(slot.value).persistent)
          return FailWhole("a slot has no persistent value");
      }
    }
    for (int i = 0; i < size(); ++i) TRAINCTL_RETURN_IF_ERROR(CheckInstruction(i));
    return absl::OkStatus();
  }

 private:
  absl::Status CheckInstruction(int i) const {
    const Instruction& instruction = At(i);
    if (static_cast<size_t>(instruction.op) >= static_cast<size_t>(kNumOps))
      return FailWhole("has an unknown instruction");
    TRAINCTL_RETURN_IF_ERROR(CheckStream(i));
    for (int wait : instruction.waits) {
      if (!InRange(wait, static_cast<size_t>(i)))
        return Fail(i, "waits for instruction ", wait, ", not an earlier one");
    }
    for (const Ids* values : {&instruction.reads, &instruction.writes, &instruction.frees}) {
      for (int value : *values) {
        if (!InRange(value, program_.values.size()))
          return Fail(i, "names value ", value, ", which does not exist");
      }
    }
    const bool is_message = instruction.op == Op::kSend || instruction.op == Op::kReceive;
    const bool micro = RunsBlock(instruction.op) || is_message || instruction.op == Op::kReduceGradient;
    if (micro && !InRange(instruction.micro_batch, static_cast<size_t>(step_.num_micro_batches)))
      return Fail(i, "has no micro-batch ", instruction.micro_batch);
    if (RunsBlock(instruction.op) || is_message) {
      if (!InRange(instruction.block, static_cast<size_t>(num_blocks_)))
        return Fail(i, "has no block ", instruction.block);
      if (is_message && instruction.block == 0) return Fail(i, "moves what is not at a border");
    }
    if (NamesBucket(instruction.op)) {
      const bool exists = ledger_ != nullptr && InRange(instruction.bucket, ledger_->buckets().size());
      if (!exists) return Fail(i, "has no bucket ", instruction.bucket);
      if (!Contains(ledger_->owners(instruction.bucket), class_))
        return Fail(i, "works on bucket ", instruction.bucket, ", which lies elsewhere");
    }
    TRAINCTL_RETURN_IF_ERROR(CheckGroups(i));
    return RunsBlock(instruction.op) ? CheckSlotCounts(i) : absl::OkStatus();
  }

  absl::Status CheckStream(int i) const {
    const Instruction& instruction = At(i);
    if (!InRange(instruction.stream, program_.streams.size())) return Fail(i, "is on no stream");
    const Stream& stream = program_.streams[static_cast<size_t>(instruction.stream)];
    bool right = false;
    if (instruction.op == Op::kSend || instruction.op == Op::kReceive) {
      if (!InRange(instruction.peer, step_.programs.size()) || instruction.peer == class_)
        return Fail(i, "has no peer ", instruction.peer);
      const bool sends = instruction.op == Op::kSend;
      right = stream.peer == instruction.peer && stream.sends == sends;
      right = right || (sends && instruction.stream == kComputeStream);
    } else if (IsCompute(instruction.op)) {
      right = instruction.stream == kComputeStream;
    } else {
      const bool reduces = instruction.op == Op::kReduceGradient || instruction.op == Op::kSumCopies;
      right = instruction.stream == (reduces ? kReduceStream : kGatherStream);
    }
    return right ? absl::OkStatus() : Fail(i, "is on stream ", stream.name);
  }

  // The axes over which an instruction works, in order.
  std::vector<layout::Axis> AxesOf(const Instruction& instruction) const {
    using layout::Axis;
    std::vector<Axis> axes;
    const bool has_tensor = ledger_ != nullptr && ledger_->mesh().tp > 1;
    if (RunsBlock(instruction.op) && instruction.op != Op::kBackwardWeight && has_tensor) return {Axis::kTp};
    switch (instruction.op) {
      case Op::kGather:
      case Op::kGatherUpdated:
        return {Axis::kDpShard};
      case Op::kReduceGradient:
        axes = {Axis::kDpShard};
        if (instruction.groups.size() > 1) axes.push_back(Axis::kDpReplicate);  // CheckReduce says when
        return axes;
      case Op::kSumCopies:
        if (ledger_->owners(instruction.bucket).size() > 1) axes.push_back(Axis::kPp);
        axes.insert(axes.end(), ledger_->CopiesOfBucket(instruction.bucket).size(), Axis::kTp);
        return axes;
      case Op::kCountLossTokens:
        return {Axis::kDpShard, Axis::kDpReplicate};
      case Op::kReduceLoss:
        axes = {Axis::kDpShard, Axis::kDpReplicate};
        break;
      case Op::kGradNorm:
        axes = {Axis::kDpShard};
        break;
      default:
        return {};
    }
    if (step_.programs.size() > 1) axes.push_back(Axis::kPp);
    if (instruction.op == Op::kGradNorm && has_tensor) axes.push_back(Axis::kTp);
    return axes;
  }

  absl::Status CheckGroups(int i) const {
    const Instruction& instruction = At(i);
    const std::vector<layout::Axis> axes = AxesOf(instruction);
    if (instruction.groups.size() != axes.size())
      return Fail(i, "works over ", instruction.groups.size(), " groups, not ", axes.size());
    for (size_t k = 0; k < axes.size(); ++k) {
      const int id = instruction.groups[k];
      if (!InRange(id, step_.groups.size())) return Fail(i, "names group ", id, ", which does not exist");
      const Group& group = step_.groups[static_cast<size_t>(id)];
      if (group.axis != axes[k])
        return Fail(i, "works over ", layout::AxisName(group.axis), " where ", layout::AxisName(axes[k]),
                    " belongs");
      if (group.stream != instruction.stream) return Fail(i, "works with a group of another stream");
      if (group.axis == layout::Axis::kTp) {
        if (group.copies != CopiesOf(instruction, k)) return Fail(i, "works with the wrong neighbours");
        continue;
      }
      if (group.axis != layout::Axis::kPp) continue;
      const bool complete = instruction.op == Op::kSumCopies
                                ? group.classes == ledger_->owners(instruction.bucket)
                                : group.classes.size() == step_.programs.size();
      if (!complete || !Contains(group.classes, class_)) return Fail(i, "works with the wrong classes");
    }
    return absl::OkStatus();
  }

  // Of group `k` of an instruction, over tp: Group::copies.
  int CopiesOf(const Instruction& instruction, size_t k) const {
    if (instruction.op != Op::kSumCopies) return 0;
    const size_t before = ledger_->owners(instruction.bucket).size() > 1 ? 1 : 0;
    const int copies = ledger_->CopiesOfBucket(instruction.bucket)[k - before];
    return copies == ledger_->mesh().tp ? 0 : copies;
  }

  absl::Status CheckSlotCounts(int i) const {
    const Instruction& instruction = At(i);
    if (ledger_ == nullptr) {
      return instruction.parameter_slots.empty() && instruction.gradients.empty()
                 ? absl::OkStatus()
                 : Fail(i, "names slots of parameters that do not exist");
    }
    const size_t num_buckets = BucketsOf(instruction.block).size();
    const size_t slots = instruction.op == Op::kBackwardWeight ? 0 : num_buckets;
    if (instruction.parameter_slots.size() != num_buckets && instruction.parameter_slots.size() != slots)
      return Fail(i, "has the wrong number of parameter slots");
    const size_t gradients = PartsWrittenBy(instruction.op) != 0 && step_.has_update ? num_buckets : 0;
    if (instruction.gradients.size() != gradients) return Fail(i, "has the wrong number of gradient slots");
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status CheckShape(const ProgramView& view) { return ShapeChecker(view).Run(); }

}  // namespace trainctl::schedule
