#include "schedule/check_program.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/segment.h"
#include "schedule/happens_before.h"

namespace trainctl::schedule {
namespace {

constexpr uint8_t kInputPart = 1;   // of a bucket's gradient: what is formed with the input gradient
constexpr uint8_t kWeightPart = 2;  // and what is not

uint8_t PartsWrittenBy(Op op) {
  if (op == Op::kLossAndGradient || op == Op::kBackward) return kInputPart | kWeightPart;
  if (op == Op::kBackwardInput) return kInputPart;
  return op == Op::kBackwardWeight ? kWeightPart : 0;
}

bool NamesBucket(Op op) {
  return op == Op::kGather || op == Op::kReduceGradient || op == Op::kSumOwners || op == Op::kGatherUpdated ||
         op == Op::kOptimizerStep;
}

bool InRange(int index, size_t count) { return index >= 0 && static_cast<size_t>(index) < count; }

template <typename List>
bool Contains(const List& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

class ProgramChecker {
 public:
  ProgramChecker(const Step& step, const layout::Ledger* ledger, int own_class)
      : step_(step),
        ledger_(ledger),
        class_(own_class),
        program_(step.programs[static_cast<size_t>(own_class)]),
        num_blocks_(step.num_blocks()) {}

  absl::Status Run() {
    TRAINCTL_RETURN_IF_ERROR(CheckShape());
    order_.emplace(program_);
    TRAINCTL_RETURN_IF_ERROR(CheckValues());
    TRAINCTL_RETURN_IF_ERROR(CheckBlocks());
    if (ledger_ == nullptr) return absl::OkStatus();
    TRAINCTL_RETURN_IF_ERROR(CheckParameters());
    if (!step_.has_update) return CheckNoUpdate();
    TRAINCTL_RETURN_IF_ERROR(CheckGradients());
    return CheckUpdate();
  }

 private:
  // ---- errors -------------------------------------------------------------------------------

  template <typename... Args>
  absl::Status Fail(int index, const Args&... reason) const {
    return CheckFailure(step_, class_, index, absl::StrCat(reason...));
  }
  template <typename... Args>
  absl::Status FailWhole(const Args&... reason) const {
    return CheckFailure(step_, class_, absl::StrCat(reason...));
  }
  const Instruction& At(int index) const { return program_.instructions[static_cast<size_t>(index)]; }
  std::string Name(int index) const { return Describe(At(index)); }
  int size() const { return static_cast<int>(program_.instructions.size()); }
  bool Before(int a, int b) const { return order_->Before(a, b); }
  const Value& ValueAt(int value) const { return program_.values[static_cast<size_t>(value)]; }
  const layout::Bucket& BucketAt(int bucket) const { return ledger_->buckets()[static_cast<size_t>(bucket)]; }
  const std::vector<int>& BucketsOf(int block) const { return ledger_->buckets_of_block(block); }

  // ---- every index in range, every instruction on its stream ----------------------------------

  absl::Status CheckShape() {
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
    for (int i = 0; i < size(); ++i) TRAINCTL_RETURN_IF_ERROR(CheckShapeOf(i));
    return absl::OkStatus();
  }

  absl::Status CheckShapeOf(int i) const {
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
      const bool reduces = instruction.op == Op::kReduceGradient || instruction.op == Op::kSumOwners;
      right = instruction.stream == (reduces ? kReduceStream : kGatherStream);
    }
    return right ? absl::OkStatus() : Fail(i, "is on stream ", stream.name);
  }

  // The axes over which an instruction works, in order.
  std::vector<layout::Axis> AxesOf(const Instruction& instruction) const {
    using layout::Axis;
    std::vector<Axis> axes;
    switch (instruction.op) {
      case Op::kGather:
      case Op::kGatherUpdated:
        return {Axis::kDpShard};
      case Op::kReduceGradient:
        axes = {Axis::kDpShard};
        if (instruction.groups.size() > 1) axes.push_back(Axis::kDpReplicate);  // CheckReduce says when
        return axes;
      case Op::kSumOwners:
        return {Axis::kPp};
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
    return axes;
  }

  absl::Status CheckGroups(int i) const {
    const Instruction& instruction = At(i);
    if (instruction.groups.empty() &&
        (RunsBlock(instruction.op) || instruction.op == Op::kSend || instruction.op == Op::kReceive ||
         instruction.op == Op::kOptimizerStep))
      return absl::OkStatus();
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
      if (group.axis != layout::Axis::kPp) continue;
      const bool complete = instruction.op == Op::kSumOwners
                                ? group.classes == ledger_->owners(instruction.bucket)
                                : group.classes.size() == step_.programs.size();
      if (!complete || !Contains(group.classes, class_)) return Fail(i, "works with the wrong classes");
    }
    return absl::OkStatus();
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

  // ---- values: written, read, freed -----------------------------------------------------------

  struct ValueState {
    int writer = -1;
    int freer = -1;
    std::vector<int> readers;
  };

  std::string ValueName(int value) const { return NameOf(ValueAt(value)); }

  absl::Status CheckValues() const {
    std::vector<ValueState> states(program_.values.size());
    for (int i = 0; i < size(); ++i) {
      const Instruction& instruction = At(i);
      for (int value : instruction.reads) {
        ValueState& state = states[static_cast<size_t>(value)];
        if (ValueAt(value).persistent) continue;
        if (state.writer < 0 || !Before(state.writer, i))
          return Fail(i, "reads '", ValueName(value), "' before it is written");
        if (state.freer >= 0)
          return Fail(i, "reads '", ValueName(value), "' after ", Name(state.freer), " freed it");
        state.readers.push_back(i);
      }
      for (int value : instruction.frees) {
        ValueState& state = states[static_cast<size_t>(value)];
        if (ValueAt(value).persistent) return Fail(i, "frees the persistent '", ValueName(value), "'");
        if (state.writer < 0 || !Before(state.writer, i))
          return Fail(i, "frees '", ValueName(value), "' before it is written");
        if (state.freer >= 0) return Fail(i, "frees '", ValueName(value), "' again");
        for (int reader : state.readers) {
          if (reader != i && !Before(reader, i))
            return Fail(i, "may free '", ValueName(value), "' while ", Name(reader), " reads it");
        }
        state.freer = i;
      }
      for (int value : instruction.writes) {
        ValueState& state = states[static_cast<size_t>(value)];
        if (ValueAt(value).persistent) return Fail(i, "writes the persistent '", ValueName(value), "'");
        if (state.writer >= 0) return Fail(i, "writes '", ValueName(value), "' again");
        state.writer = i;
      }
    }
    for (size_t v = 0; v < states.size(); ++v) {
      const int value = static_cast<int>(v);
      if (ValueAt(value).persistent) continue;
      if (states[v].writer < 0) return FailWhole("value '", ValueName(value), "' is never written");
      if (states[v].readers.empty()) return FailWhole("value '", ValueName(value), "' is never read");
      if (states[v].freer < 0) return FailWhole("value '", ValueName(value), "' is never freed");
    }
    return absl::OkStatus();
  }

  // ---- each block forward and backward once per micro-batch, on the right values ---------------

  // What one block of one micro-batch has done so far.
  struct BlockState {
    int forward = -1;  // also kLoss and kLossAndGradient
    int recompute = -1;
    int backward = -1;  // also kBackwardInput and kLossAndGradient
    int weights = -1;   // also kBackward and kLossAndGradient
    int saved = -1;     // value: what its backward reads, if anything
  };

  BlockState& StateOf(int block, int m) {
    return blocks_[static_cast<size_t>(block) * static_cast<size_t>(step_.num_micro_batches) +
                   static_cast<size_t>(m)];
  }

  absl::Status CheckBlocks() {
    blocks_.resize(static_cast<size_t>(num_blocks_) * static_cast<size_t>(step_.num_micro_batches));
    for (int i = 0; i < size(); ++i) {
      const Op op = At(i).op;
      if (op == Op::kSend || op == Op::kReceive) TRAINCTL_RETURN_IF_ERROR(CheckMessage(i));
      if (!RunsBlock(op)) continue;
      if (step_.ClassOf(At(i).block, At(i).micro_batch) != class_)
        return Fail(i, "runs a block that lies on class ", step_.ClassOf(At(i).block, At(i).micro_batch));
      if (At(i).joined) TRAINCTL_RETURN_IF_ERROR(CheckJoined(i));
      switch (op) {
        case Op::kBackward:
        case Op::kBackwardInput:
          TRAINCTL_RETURN_IF_ERROR(CheckBackward(i));
          break;
        case Op::kBackwardWeight:
          TRAINCTL_RETURN_IF_ERROR(CheckBackwardWeight(i));
          break;
        case Op::kRecompute:
          TRAINCTL_RETURN_IF_ERROR(CheckRecompute(i));
          break;
        default:
          TRAINCTL_RETURN_IF_ERROR(CheckForward(i));
      }
    }
    for (int stage : step_.placement.StagesOf(class_)) {
      for (int m = 0; m < step_.num_micro_batches; ++m) {
        if (step_.placement.RankOf(stage, m) == class_) TRAINCTL_RETURN_IF_ERROR(CheckComplete(stage, m));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckComplete(int stage, int m) {
    const size_t s = static_cast<size_t>(stage);
    for (int block = step_.stage_begin[s]; block < step_.stage_begin[s + 1]; ++block) {
      const BlockState& state = StateOf(block, m);
      const char* missing = state.forward < 0                    ? "forward"
                            : step_.trains && state.backward < 0 ? "backward"
                            : step_.trains && state.weights < 0  ? "backward of its weights"
                                                                 : nullptr;
      if (missing != nullptr) return FailWhole("block ", block, " micro-batch ", m, " has no ", missing);
    }
    return absl::OkStatus();
  }

  // Values of the kinds that a pass must read or write, no other.
  class Expected {
   public:
    void Add(ValueKind kind, int block) { wanted_[count_++] = {kind, block}; }
    bool Matches(const ProgramChecker& checker, const Ids& values, int micro_batch) const {
      if (values.size() != count_) return false;
      for (size_t k = 0; k < count_; ++k) {
        const auto is = [&](int value) {
          const Value& v = checker.ValueAt(value);
          return v.kind == wanted_[k].first && v.block == wanted_[k].second && v.micro_batch == micro_batch;
        };
        if (std::none_of(values.begin(), values.end(), is)) return false;
      }
      return true;
    }
    std::string Names() const {
      std::string names;
      for (size_t k = 0; k < count_; ++k) {
        absl::StrAppend(&names, names.empty() ? "" : ", ", ValueKindName(wanted_[k].first), " of block ",
                        wanted_[k].second);
      }
      return names.empty() ? "nothing" : names;
    }

   private:
    std::array<std::pair<ValueKind, int>, 3> wanted_;  // the most that any reads or writes
    size_t count_ = 0;
  };

  absl::Status Reads(int i, const Expected& expected) const {
    if (expected.Matches(*this, At(i).reads, At(i).micro_batch)) return absl::OkStatus();
    return Fail(i, "should read ", expected.Names());
  }
  absl::Status Writes(int i, const Expected& expected) const {
    if (expected.Matches(*this, At(i).writes, At(i).micro_batch)) return absl::OkStatus();
    return Fail(i, "should write ", expected.Names());
  }

  absl::Status CheckMessage(int i) const {
    const Instruction& message = At(i);
    const bool sends = message.op == Op::kSend;
    const Ids& moved = sends ? message.reads : message.writes;
    if (moved.size() != 1 || !(sends ? message.writes : message.reads).empty())
      return Fail(i, "moves ", moved.size(), " values");
    const Value& value = ValueAt(moved[0]);
    const bool is_gradient = value.kind == ValueKind::kHiddenGradient;
    if ((!is_gradient && value.kind != ValueKind::kHidden) || value.block != message.block ||
        value.micro_batch != message.micro_batch) {
      return Fail(i, "moves '", NameOf(value), "'");
    }
    const int below = step_.ClassOf(message.block - 1, message.micro_batch);
    const int above = step_.ClassOf(message.block, message.micro_batch);
    const int from = is_gradient ? above : below;
    const int to = is_gradient ? below : above;
    if ((sends ? from : to) != class_ || (sends ? to : from) != message.peer)
      return Fail(i, "moves what goes from ", from, " to ", to);
    return absl::OkStatus();
  }

  absl::Status CheckJoined(int i) const {
    for (int next = i + 1; next < size(); ++next) {
      const Instruction& partner = At(next);
      if (partner.stream != kComputeStream) continue;
      const bool backward = partner.op == Op::kBackward || partner.op == Op::kBackwardInput;
      const bool other = partner.block != At(i).block || partner.micro_batch != At(i).micro_batch;
      if (At(i).op == Op::kForward && backward && other) return absl::OkStatus();
      break;
    }
    return Fail(i, "is joined with no backward of another micro-batch");
  }

  absl::Status CheckForward(int i) {
    const Instruction& instruction = At(i);
    const Op expected_op = instruction.block < step_.head() ? Op::kForward
                           : step_.trains                   ? Op::kLossAndGradient
                                                            : Op::kLoss;
    if (instruction.op != expected_op) return Fail(i, "stands where '", OpName(expected_op), "' belongs");
    BlockState& state = StateOf(instruction.block, instruction.micro_batch);
    if (state.forward >= 0) return Fail(i, "runs a second time");
    state.forward = i;
    Expected reads, writes;
    if (instruction.block > 0) reads.Add(ValueKind::kHidden, instruction.block);
    TRAINCTL_RETURN_IF_ERROR(Reads(i, reads));
    if (instruction.op == Op::kLoss) return Writes(i, writes);
    if (instruction.op == Op::kLossAndGradient) {
      state.backward = state.weights = i;
      if (instruction.block > 0) writes.Add(ValueKind::kHiddenGradient, instruction.block);
      return Writes(i, writes);
    }
    if (instruction.block + 1 < num_blocks_) writes.Add(ValueKind::kHidden, instruction.block + 1);
    state.saved = FindSaved(instruction);
    if (state.saved >= 0 && !instruction.keep) return Fail(i, "saves for the backward but is not to keep");
    if (state.saved >= 0 || (instruction.keep && SavesSomething(instruction.block)))
      writes.Add(ValueKind::kSaved, instruction.block);
    return Writes(i, writes);
  }

  // The embedding's backward needs tokens alone.
  bool SavesSomething(int block) const { return !step_.has_head || block != model::EmbeddingBlock(); }

  int FindSaved(const Instruction& instruction) const {
    for (int value : instruction.writes) {
      if (ValueAt(value).kind == ValueKind::kSaved) return value;
    }
    return -1;
  }

  absl::Status CheckRecompute(int i) {
    const Instruction& instruction = At(i);
    BlockState& state = StateOf(instruction.block, instruction.micro_batch);
    if (state.forward < 0 || state.backward >= 0 || state.recompute >= 0)
      return Fail(i, "does not stand between forward and backward, once");
    if (At(state.forward).keep) return Fail(i, "but the forward kept everything already");
    Expected reads, writes;
    if (instruction.block > 0) reads.Add(ValueKind::kHidden, instruction.block);
    TRAINCTL_RETURN_IF_ERROR(Reads(i, reads));
    state.recompute = i;
    state.saved = FindSaved(instruction);
    if (state.saved >= 0 || SavesSomething(instruction.block))
      writes.Add(ValueKind::kSaved, instruction.block);
    return Writes(i, writes);
  }

  absl::Status CheckBackward(int i) {
    const Instruction& instruction = At(i);
    const int block = instruction.block;
    if (!step_.trains || block == step_.head()) return Fail(i, "has no backward of its own");
    if (instruction.op == Op::kBackwardInput && step_.has_head && block == model::EmbeddingBlock())
      return Fail(i, "has no input whose gradient could be formed first");
    BlockState& state = StateOf(block, instruction.micro_batch);
    if (state.forward < 0) return Fail(i, "runs before its forward");
    if (state.backward >= 0) return Fail(i, "runs a second time");
    if (!At(state.forward).keep && state.recompute < 0)
      return Fail(i, "needs what neither forward nor recompute kept");
    Expected reads, writes;
    if (block + 1 < num_blocks_) reads.Add(ValueKind::kHiddenGradient, block + 1);
    if (block > 0) reads.Add(ValueKind::kHidden, block);
    if (state.saved >= 0) reads.Add(ValueKind::kSaved, block);
    TRAINCTL_RETURN_IF_ERROR(Reads(i, reads));
    state.backward = i;
    if (block > 0) writes.Add(ValueKind::kHiddenGradient, block);
    if (instruction.op == Op::kBackwardInput) {
      writes.Add(ValueKind::kQueued, block);
    } else {
      state.weights = i;
    }
    return Writes(i, writes);
  }

  absl::Status CheckBackwardWeight(int i) {
    const Instruction& instruction = At(i);
    BlockState& state = StateOf(instruction.block, instruction.micro_batch);
    if (state.backward < 0 || At(state.backward).op != Op::kBackwardInput)
      return Fail(i, "runs before its input gradient");
    if (state.weights >= 0) return Fail(i, "runs a second time");
    state.weights = i;
    Expected reads;
    reads.Add(ValueKind::kQueued, instruction.block);
    TRAINCTL_RETURN_IF_ERROR(Reads(i, reads));
    return Writes(i, Expected());
  }

  // ---- parameters: gathered into slots, read, replaced ------------------------------------------

  struct ParameterSlotState {
    int gather = -1;
    std::vector<int> readers;  // of what it holds now
  };

  absl::Status CheckParameters() const {
    std::vector<ParameterSlotState> slots(program_.parameter_slots.size());
    for (int i = 0; i < size(); ++i) {
      if (At(i).op == Op::kGather) TRAINCTL_RETURN_IF_ERROR(CheckGather(i, slots));
      if (RunsBlock(At(i).op)) TRAINCTL_RETURN_IF_ERROR(CheckParameterReads(i, slots));
    }
    for (const ParameterSlotState& state : slots) {
      if (state.gather >= 0 && state.readers.empty()) return Fail(state.gather, "is read by nobody");
    }
    return absl::OkStatus();
  }

  absl::Status CheckGather(int i, std::vector<ParameterSlotState>& slots) const {
    const Instruction& gather = At(i);
    if (!ledger_->parameters_sharded()) return Fail(i, "but parameters are not sharded");
    if (!InRange(gather.slot, slots.size())) return Fail(i, "has no such slot");
    if (program_.parameter_slots[static_cast<size_t>(gather.slot)].numel <
        BucketAt(gather.bucket).padded_numel) {
      return Fail(i, "does not fit the slot");
    }
    ParameterSlotState& state = slots[static_cast<size_t>(gather.slot)];
    if (state.gather >= 0 && state.readers.empty()) return Fail(state.gather, "is read by nobody");
    for (int reader : state.readers) {
      if (!Before(reader, i)) return Fail(i, "may overwrite the slot while ", Name(reader), " reads it");
    }
    state.gather = i;
    state.readers.clear();
    return absl::OkStatus();
  }

  absl::Status CheckParameterReads(int i, std::vector<ParameterSlotState>& slots) const {
    const Instruction& instruction = At(i);
    const std::vector<int>& buckets = BucketsOf(instruction.block);
    // Looking up rows has no derivative that needs the table; weight gradients need activations alone.
    const bool reads_none = instruction.op == Op::kBackwardWeight ||
                            (instruction.op == Op::kBackward && instruction.block == model::EmbeddingBlock());
    for (size_t k = 0; k < instruction.parameter_slots.size(); ++k) {
      const int slot = instruction.parameter_slots[k];
      if (!ledger_->parameters_sharded() || reads_none) {
        if (slot != -1) return Fail(i, "names a parameter slot but reads none");
        continue;
      }
      if (!InRange(slot, slots.size())) return Fail(i, "has no parameter slot for bucket ", buckets[k]);
      ParameterSlotState& state = slots[static_cast<size_t>(slot)];
      if (state.gather < 0 || At(state.gather).bucket != buckets[k]) {
        return Fail(i, "reads bucket ", buckets[k], " from slot ", slot, ", which holds ",
                    state.gather < 0 ? "nothing" : absl::StrCat("bucket ", At(state.gather).bucket));
      }
      if (!Before(state.gather, i)) return Fail(i, "does not wait for ", Name(state.gather));
      state.readers.push_back(i);
    }
    return absl::OkStatus();
  }

  // ---- gradients: written, added to, reduced ------------------------------------------------------

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

  absl::Status CheckGradients() {
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
    return absl::OkStatus();
  }

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

  // ---- loss, norm and update ------------------------------------------------------------------------

  absl::Status CheckNoUpdate() const {
    for (int i = 0; i < size(); ++i) {
      const Op op = At(i).op;
      const bool belongs = op == Op::kGather || op == Op::kSend || op == Op::kReceive || RunsBlock(op);
      if (!belongs) return Fail(i, "does not belong in a step without an update");
    }
    return absl::OkStatus();
  }

  // The only instruction of its kind, or an error.
  absl::StatusOr<int> Single(Op op) const {
    int found = -1;
    for (int i = 0; i < size(); ++i) {
      if (At(i).op != op) continue;
      if (found >= 0) return Fail(i, "runs a second time");
      found = i;
    }
    if (found < 0) return FailWhole("there is no '", OpName(op), "'");
    return found;
  }

  // Of each bucket the one instruction of a kind; -1: none.
  absl::StatusOr<std::vector<int>> OnePerBucket(Op op) const {
    std::vector<int> found(ledger_->buckets().size(), -1);
    for (int i = 0; i < size(); ++i) {
      if (At(i).op != op) continue;
      int& place = found[static_cast<size_t>(At(i).bucket)];
      if (place >= 0) return Fail(i, "runs a second time");
      place = i;
    }
    return found;
  }

  absl::Status CheckUpdate() const {
    TRAINCTL_ASSIGN_OR_RETURN(const int count, Single(Op::kCountLossTokens));
    TRAINCTL_ASSIGN_OR_RETURN(const int loss, Single(Op::kReduceLoss));
    TRAINCTL_ASSIGN_OR_RETURN(const int norm, Single(Op::kGradNorm));
    if (!Before(loss, norm)) return Fail(norm, "decides before the loss is known");
    for (int i = 0; i < size(); ++i) {
      const Op op = At(i).op;
      if (op == Op::kLossAndGradient) {
        if (!Before(count, i)) return Fail(i, "does not know the number of loss tokens yet");
        if (!Before(i, loss)) return Fail(loss, "does not wait for ", Name(i));
      }
      const bool sums = op == Op::kReduceGradient || op == Op::kSumOwners;
      if (sums && !Before(i, norm)) return Fail(norm, "does not wait for ", Name(i));
    }
    TRAINCTL_RETURN_IF_ERROR(CheckOwners());
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int> update, OnePerBucket(Op::kOptimizerStep));
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int> gathered, OnePerBucket(Op::kGatherUpdated));
    const bool gathers = ledger_->optimizer_sharded() && !ledger_->parameters_sharded();
    for (int bucket : ledger_->BucketsOfOwner(class_)) {
      const size_t b = static_cast<size_t>(bucket);
      if (update[b] < 0) return FailWhole("bucket ", b, " is never updated");
      if (!Before(norm, update[b])) return Fail(update[b], "does not wait for the gradient norm");
      if (gathers != (gathered[b] >= 0)) {
        return FailWhole("the updated bucket ", b,
                         gathers ? " is never gathered" : " is gathered but was never cut");
      }
      if (gathers && !Before(update[b], gathered[b]))
        return Fail(gathered[b], "does not wait for ", Name(update[b]));
    }
    return CheckNothingReadsUpdated(update);
  }

  // What lies on several classes is summed over them once, when this class's part is complete.
  absl::Status CheckOwners() const {
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int> sums, OnePerBucket(Op::kSumOwners));
    for (int bucket : ledger_->BucketsOfOwner(class_)) {
      const size_t b = static_cast<size_t>(bucket);
      const bool shared = ledger_->owners(bucket).size() > 1;
      if (shared != (sums[b] >= 0)) {
        return FailWhole("bucket ", bucket,
                         shared ? " is never summed over its owners" : " is summed over owners but has one");
      }
      if (shared && !Before(buckets_[b].last_reduction, sums[b]))
        return Fail(sums[b], "does not wait for ", Name(buckets_[b].last_reduction));
    }
    return absl::OkStatus();
  }

  // No instruction of this step may see parameters of the next.
  absl::Status CheckNothingReadsUpdated(const std::vector<int>& update) const {
    for (int i = 0; i < size(); ++i) {
      if (At(i).op == Op::kGather) {
        const int by = update[static_cast<size_t>(At(i).bucket)];
        if (!Before(i, by)) return Fail(i, "may read what ", Name(by), " writes");
      }
      if (!RunsBlock(At(i).op)) continue;
      for (int bucket : BucketsOf(At(i).block)) {
        const int by = update[static_cast<size_t>(bucket)];
        if (!Before(i, by)) return Fail(i, "may read what ", Name(by), " writes");
      }
    }
    return absl::OkStatus();
  }

  const Step& step_;
  const layout::Ledger* ledger_;
  const int class_;
  const Program& program_;
  const int num_blocks_;
  std::optional<HappensBefore> order_;
  std::vector<BlockState> blocks_;        // [block, micro-batch]
  std::vector<GradientState> gradients_;  // under way
  std::vector<BucketState> buckets_;      // by bucket
  std::vector<GradientSlotState> gradient_slots_;
};

}  // namespace

absl::Status CheckProgram(const Step& step, const layout::Ledger* ledger, int own_class) {
  return ProgramChecker(step, ledger, own_class).Run();
}

}  // namespace trainctl::schedule
