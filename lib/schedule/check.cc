// The proof of a schedule: see Check in schedule.h. Everything is derived from "happens before":
// what has completed, whatever the streams' relative speed, when an instruction starts.

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/schedule.h"

namespace trainctl::schedule {
namespace {

bool OnCompute(Op op) { return op != Op::kGather && op != Op::kReduceGradient && op != Op::kGatherUpdated; }
bool RunsBlock(Op op) {
  return op == Op::kForward || op == Op::kLoss || op == Op::kLossAndGradient || op == Op::kRecompute ||
         op == Op::kBackward;
}
bool WritesGradient(Op op) { return op == Op::kLossAndGradient || op == Op::kBackward; }
bool NamesBucket(Op op) { return !OnCompute(op) || op == Op::kOptimizerStep; }

StreamId StreamOf(Op op) {
  if (OnCompute(op)) return StreamId::kCompute;
  return op == Op::kReduceGradient ? StreamId::kReduce : StreamId::kGather;
}

bool Contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Vector clocks: for each instruction, how many instructions of each stream have completed before it.
class HappensBefore {
 public:
  explicit HappensBefore(const std::vector<Instruction>& instructions) {
    std::array<int, kNumStreams> previous = {-1, -1, -1};
    std::array<int, kNumStreams> length = {0, 0, 0};
    for (size_t i = 0; i < instructions.size(); ++i) {
      const size_t stream = static_cast<size_t>(instructions[i].stream);
      Clock clock = {0, 0, 0};
      if (previous[stream] >= 0) Join(clock, previous[stream]);
      for (int wait : instructions[i].waits) Join(clock, wait);
      clocks_.push_back(clock);
      streams_.push_back(stream);
      positions_.push_back(++length[stream]);
      previous[stream] = static_cast<int>(i);
    }
  }

  bool Before(int a, int b) const {
    return clocks_[static_cast<size_t>(b)][streams_[static_cast<size_t>(a)]] >=
           positions_[static_cast<size_t>(a)];
  }

 private:
  using Clock = std::array<int, kNumStreams>;
  void Join(Clock& clock, int earlier) const {
    const size_t e = static_cast<size_t>(earlier);
    for (size_t s = 0; s < kNumStreams; ++s) clock[s] = std::max(clock[s], clocks_[e][s]);
    clock[streams_[e]] = std::max(clock[streams_[e]], positions_[e]);
  }

  std::vector<Clock> clocks_;
  std::vector<size_t> streams_;
  std::vector<int> positions_;
};

class Checker {
 public:
  Checker(const Schedule& schedule, const layout::Ledger& ledger)
      : schedule_(schedule),
        ledger_(ledger),
        head_(ledger.num_buckets() - 1),
        num_micro_batches_(schedule.num_micro_batches) {}

  absl::Status Run() {
    TRAINCTL_RETURN_IF_ERROR(CheckShape());
    order_ = std::make_unique<HappensBefore>(schedule_.instructions);
    TRAINCTL_RETURN_IF_ERROR(CheckValues());
    TRAINCTL_RETURN_IF_ERROR(CheckBlocks());
    TRAINCTL_RETURN_IF_ERROR(CheckParameters());
    if (!training_) return CheckForwardOnly();
    TRAINCTL_RETURN_IF_ERROR(CheckGradients());
    return CheckUpdate();
  }

 private:
  // ---- errors -------------------------------------------------------------------------------

  template <typename... Args>
  absl::Status Fail(int index, const Args&... reason) const {
    return InternalError(absl::StrCat("schedule: instruction ", index, " (", Name(index), "): ", reason...));
  }
  template <typename... Args>
  static absl::Status FailWhole(const Args&... reason) {
    return InternalError(absl::StrCat("schedule: ", reason...));
  }
  const Instruction& At(int index) const { return schedule_.instructions[static_cast<size_t>(index)]; }
  std::string Name(int index) const { return Describe(At(index)); }
  int size() const { return static_cast<int>(schedule_.instructions.size()); }
  bool Before(int a, int b) const { return order_->Before(a, b); }
  const layout::Bucket& BucketAt(int bucket) const { return ledger_.buckets()[static_cast<size_t>(bucket)]; }

  // ---- every index in range, every instruction on its stream ----------------------------------

  absl::Status CheckShape() {
    if (num_micro_batches_ < 1) return FailWhole("num_micro_batches is ", num_micro_batches_);
    if (schedule_.zero_stage != ledger_.zero_stage()) {
      return FailWhole("built for stage ", schedule_.zero_stage, ", the ledger has ", ledger_.zero_stage());
    }
    for (const std::vector<Slot>* slots : {&schedule_.parameter_slots, &schedule_.gradient_slots}) {
      for (const Slot& slot : *slots) {
        if (!InRange(slot.value, schedule_.values.size()) ||
            !schedule_.values[static_cast<size_t>(slot.value)].persistent) {
          return FailWhole("a slot has no persistent value");
        }
      }
    }
    for (int i = 0; i < size(); ++i) TRAINCTL_RETURN_IF_ERROR(CheckShapeOf(i));
    return absl::OkStatus();
  }

  static bool InRange(int index, size_t count) { return index >= 0 && static_cast<size_t>(index) < count; }

  absl::Status CheckShapeOf(int i) {
    const Instruction& instruction = At(i);
    if (instruction.stream != StreamOf(instruction.op)) {
      return Fail(i, "is on stream ", StreamName(instruction.stream));
    }
    for (int wait : instruction.waits) {
      if (!InRange(wait, static_cast<size_t>(i)))
        return Fail(i, "waits for instruction ", wait, ", not an earlier one");
    }
    for (const std::vector<int>* values : {&instruction.reads, &instruction.writes, &instruction.frees}) {
      for (int value : *values) {
        if (!InRange(value, schedule_.values.size()))
          return Fail(i, "names value ", value, ", which does not exist");
      }
    }
    const bool micro = RunsBlock(instruction.op) || instruction.op == Op::kReduceGradient;
    if (micro && !InRange(instruction.micro_batch, static_cast<size_t>(num_micro_batches_))) {
      return Fail(i, "has no micro-batch ", instruction.micro_batch);
    }
    if (NamesBucket(instruction.op) && !InRange(instruction.bucket, ledger_.buckets().size())) {
      return Fail(i, "has no bucket ", instruction.bucket);
    }
    if (!RunsBlock(instruction.op)) return absl::OkStatus();
    if (!InRange(instruction.block, ledger_.buckets().size()))
      return Fail(i, "has no block ", instruction.block);
    const size_t num_buckets = ledger_.buckets_of_block(instruction.block).size();
    if (instruction.parameter_slots.size() != num_buckets)
      return Fail(i, "has the wrong number of parameter slots");
    const size_t gradients = WritesGradient(instruction.op) ? num_buckets : 0;
    if (instruction.gradient_slots.size() != gradients || instruction.accumulate.size() != gradients) {
      return Fail(i, "has the wrong number of gradient slots");
    }
    if (WritesGradient(instruction.op)) training_ = true;
    return absl::OkStatus();
  }

  // ---- values: written, read, freed -----------------------------------------------------------

  struct ValueState {
    int writer = -1;
    int freer = -1;
    std::vector<int> readers;
  };

  std::string ValueName(int value) const { return schedule_.values[static_cast<size_t>(value)].name; }

  absl::Status CheckValues() const {
    std::vector<ValueState> states(schedule_.values.size());
    for (int i = 0; i < size(); ++i) {
      const Instruction& instruction = At(i);
      for (int value : instruction.reads) {
        ValueState& state = states[static_cast<size_t>(value)];
        if (schedule_.values[static_cast<size_t>(value)].persistent) continue;
        if (state.writer < 0 || !Before(state.writer, i))
          return Fail(i, "reads '", ValueName(value), "' before it is written");
        if (state.freer >= 0)
          return Fail(i, "reads '", ValueName(value), "' after ", Name(state.freer), " freed it");
        state.readers.push_back(i);
      }
      for (int value : instruction.frees) {
        ValueState& state = states[static_cast<size_t>(value)];
        if (schedule_.values[static_cast<size_t>(value)].persistent)
          return Fail(i, "frees the persistent '", ValueName(value), "'");
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
        if (schedule_.values[static_cast<size_t>(value)].persistent)
          return Fail(i, "writes the persistent '", ValueName(value), "'");
        if (state.writer >= 0) return Fail(i, "writes '", ValueName(value), "' again");
        state.writer = i;
      }
    }
    for (size_t v = 0; v < states.size(); ++v) {
      if (schedule_.values[v].persistent) continue;
      if (states[v].writer < 0) return FailWhole("value '", schedule_.values[v].name, "' is never written");
      if (states[v].readers.empty()) return FailWhole("value '", schedule_.values[v].name, "' is never read");
      if (states[v].freer < 0) return FailWhole("value '", schedule_.values[v].name, "' is never freed");
    }
    return absl::OkStatus();
  }

  // ---- each block forward and backward once per micro-batch, on the right values ---------------

  // What one block of one micro-batch has done so far.
  struct BlockState {
    int forward = -1;  // also kLoss and kLossAndGradient
    int recompute = -1;
    int backward = -1;
    int output = -1;    // value: what the next block reads
    int saved = -1;     // value: what its backward reads, if anything
    int gradient = -1;  // value: gradient of its input
  };

  BlockState& StateOf(int block, int m) { return blocks_[{block, m}]; }

  absl::Status CheckBlocks() {
    for (int i = 0; i < size(); ++i) {
      if (!RunsBlock(At(i).op)) continue;
      if (At(i).op == Op::kBackward) {
        TRAINCTL_RETURN_IF_ERROR(CheckBackward(i));
      } else if (At(i).op == Op::kRecompute) {
        TRAINCTL_RETURN_IF_ERROR(CheckRecompute(i));
      } else {
        TRAINCTL_RETURN_IF_ERROR(CheckForward(i));
      }
    }
    for (int m = 0; m < num_micro_batches_; ++m) {
      for (int block = 0; block <= head_; ++block) {
        const BlockState& state = StateOf(block, m);
        if (state.forward < 0) return FailWhole("block ", block, " micro-batch ", m, " has no forward");
        if (training_ && block < head_ && state.backward < 0) {
          return FailWhole("block ", block, " micro-batch ", m, " has no backward");
        }
      }
    }
    return absl::OkStatus();
  }

  // The hidden state that `i` works on.
  absl::Status ReadsInput(int i) {
    const Instruction& instruction = At(i);
    if (instruction.block == 0) return absl::OkStatus();
    const int input = StateOf(instruction.block - 1, instruction.micro_batch).output;
    if (input < 0 || !Contains(instruction.reads, input))
      return Fail(i, "does not read the output of the block before");
    return absl::OkStatus();
  }

  absl::Status CheckForward(int i) {
    const Instruction& instruction = At(i);
    const Op expected = instruction.block < head_ ? Op::kForward
                        : training_               ? Op::kLossAndGradient
                                                  : Op::kLoss;
    if (instruction.op != expected) return Fail(i, "stands where '", OpName(expected), "' belongs");
    BlockState& state = StateOf(instruction.block, instruction.micro_batch);
    if (state.forward >= 0) return Fail(i, "runs a second time");
    TRAINCTL_RETURN_IF_ERROR(ReadsInput(i));
    state.forward = i;
    if (instruction.op == Op::kLoss) return absl::OkStatus();
    if (instruction.writes.empty()) return Fail(i, "writes nothing");
    (instruction.op == Op::kForward ? state.output : state.gradient) = instruction.writes[0];
    if (instruction.writes.size() > 1) {
      if (!instruction.keep) return Fail(i, "saves for the backward but is not to keep");
      state.saved = instruction.writes[1];
    }
    return absl::OkStatus();
  }

  absl::Status CheckRecompute(int i) {
    const Instruction& instruction = At(i);
    BlockState& state = StateOf(instruction.block, instruction.micro_batch);
    if (state.forward < 0 || state.backward >= 0 || state.recompute >= 0)
      return Fail(i, "does not stand between forward and backward, once");
    if (At(state.forward).keep) return Fail(i, "but the forward kept everything already");
    TRAINCTL_RETURN_IF_ERROR(ReadsInput(i));
    state.recompute = i;
    if (!instruction.writes.empty()) state.saved = instruction.writes[0];
    return absl::OkStatus();
  }

  absl::Status CheckBackward(int i) {
    const Instruction& instruction = At(i);
    if (instruction.block >= head_) return Fail(i, "has no backward of its own");
    BlockState& state = StateOf(instruction.block, instruction.micro_batch);
    const BlockState& next = StateOf(instruction.block + 1, instruction.micro_batch);
    if (state.forward < 0) return Fail(i, "runs before its forward");
    if (state.backward >= 0) return Fail(i, "runs a second time");
    if (!At(state.forward).keep && state.recompute < 0)
      return Fail(i, "needs what neither forward nor recompute kept");
    if (next.gradient < 0 || !Contains(instruction.reads, next.gradient))
      return Fail(i, "does not read the gradient of the block after");
    TRAINCTL_RETURN_IF_ERROR(ReadsInput(i));
    if (state.saved >= 0 && !Contains(instruction.reads, state.saved))
      return Fail(i, "does not read what was saved for it");
    state.backward = i;
    if (instruction.block > 0) {
      if (instruction.writes.empty()) return Fail(i, "writes no gradient of its input");
      state.gradient = instruction.writes[0];
    }
    return absl::OkStatus();
  }

  // ---- parameters: gathered into slots, read, replaced ------------------------------------------

  struct ParameterSlotState {
    int gather = -1;
    std::vector<int> readers;  // of what it holds now
  };

  absl::Status CheckParameters() const {
    std::vector<ParameterSlotState> slots(schedule_.parameter_slots.size());
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
    if (!ledger_.parameters_sharded()) return Fail(i, "but parameters are not sharded");
    if (!InRange(gather.slot, slots.size())) return Fail(i, "has no such slot");
    if (schedule_.parameter_slots[static_cast<size_t>(gather.slot)].numel <
        BucketAt(gather.bucket).padded_numel) {
      return Fail(i, "does not fit its slot");
    }
    ParameterSlotState& state = slots[static_cast<size_t>(gather.slot)];
    if (state.gather >= 0 && state.readers.empty()) return Fail(state.gather, "is read by nobody");
    for (int reader : state.readers) {
      if (!Before(reader, i)) return Fail(i, "may overwrite the slot while ", Name(reader), " reads it");
    }
    state = {.gather = i, .readers = {}};
    return absl::OkStatus();
  }

  absl::Status CheckParameterReads(int i, std::vector<ParameterSlotState>& slots) const {
    const Instruction& instruction = At(i);
    const std::vector<int>& buckets = ledger_.buckets_of_block(instruction.block);
    // Looking up rows has no derivative that needs the table.
    const bool reads_none = instruction.op == Op::kBackward && instruction.block == model::EmbeddingBlock();
    for (size_t k = 0; k < buckets.size(); ++k) {
      const int slot = instruction.parameter_slots[k];
      if (!ledger_.parameters_sharded() || reads_none) {
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

  // A bucket's gradient from its first write to its reduction.
  struct GradientState {
    std::vector<int> writers;
    int num_reductions = 0;
    int last_reduction = -1;
  };
  struct GradientSlotState {
    int bucket = -1;  // that holds it now
    int last_reduction = -1;
  };

  absl::Status CheckGradients() {
    gradients_.resize(ledger_.buckets().size());
    std::vector<GradientSlotState> slots(schedule_.gradient_slots.size());
    for (int i = 0; i < size(); ++i) {
      if (WritesGradient(At(i).op)) TRAINCTL_RETURN_IF_ERROR(CheckGradientWrites(i, slots));
      if (At(i).op == Op::kReduceGradient) TRAINCTL_RETURN_IF_ERROR(CheckReduce(i, slots));
    }
    for (const layout::Bucket& bucket : ledger_.buckets()) {
      const GradientState& state = gradients_[static_cast<size_t>(bucket.block)];
      if (state.num_reductions != ReductionsPerStep()) {
        return FailWhole("the gradient of bucket ", bucket.block, " is reduced ", state.num_reductions,
                         " times, not ", ReductionsPerStep());
      }
      if (!state.writers.empty()) return Fail(state.writers.back(), "writes a gradient that nobody reduces");
    }
    return absl::OkStatus();
  }

  int ReductionsPerStep() const { return ledger_.gradients_sharded() ? num_micro_batches_ : 1; }

  absl::Status CheckGradientWrites(int i, std::vector<GradientSlotState>& slots) {
    const Instruction& instruction = At(i);
    const std::vector<int>& buckets = ledger_.buckets_of_block(instruction.block);
    for (size_t k = 0; k < buckets.size(); ++k) {
      const int bucket = buckets[k];
      GradientState& state = gradients_[static_cast<size_t>(bucket)];
      if (instruction.accumulate[k] != !state.writers.empty()) {
        return Fail(i,
                    state.writers.empty() ? "adds to a gradient that was not begun: bucket "
                                          : "overwrites a gradient under way: bucket ",
                    bucket);
      }
      TRAINCTL_RETURN_IF_ERROR(CheckGradientSlot(i, bucket, instruction.gradient_slots[k], slots));
      // Two writers on different streams could add at once.
      if (!state.writers.empty() && !Before(state.writers.back(), i)) {
        return Fail(i, "may add to bucket ", bucket, " while ", Name(state.writers.back()), " does");
      }
      if (state.last_reduction >= 0 && !ledger_.gradients_sharded()) {
        return Fail(i, "writes bucket ", bucket, " after ", Name(state.last_reduction));
      }
      state.writers.push_back(i);
    }
    return absl::OkStatus();
  }

  absl::Status CheckGradientSlot(int i, int bucket, int slot, std::vector<GradientSlotState>& slots) const {
    if (!ledger_.gradients_sharded()) {
      return slot == -1 ? absl::OkStatus() : Fail(i, "names a gradient slot but gradients are not sharded");
    }
    if (!InRange(slot, slots.size())) return Fail(i, "has no gradient slot for bucket ", bucket);
    if (schedule_.gradient_slots[static_cast<size_t>(slot)].numel < BucketAt(bucket).padded_numel) {
      return Fail(i, "does not fit gradient slot ", slot);
    }
    GradientSlotState& state = slots[static_cast<size_t>(slot)];
    const bool begins = gradients_[static_cast<size_t>(bucket)].writers.empty();
    if (!begins && state.bucket != bucket)
      return Fail(i, "adds in gradient slot ", slot, ", but bucket ", bucket, " is elsewhere");
    if (begins) {
      if (state.bucket >= 0)
        return Fail(i, "overwrites gradient slot ", slot, ", which holds bucket ", state.bucket);
      if (state.last_reduction >= 0 && !Before(state.last_reduction, i)) {
        return Fail(i, "may overwrite gradient slot ", slot, " while ", Name(state.last_reduction),
                    " reads it");
      }
      state.bucket = bucket;
    }
    return absl::OkStatus();
  }

  absl::Status CheckReduce(int i, std::vector<GradientSlotState>& slots) {
    const Instruction& reduce = At(i);
    GradientState& state = gradients_[static_cast<size_t>(reduce.bucket)];
    const size_t num_users = BucketAt(reduce.bucket).used_by.size();
    const size_t expected =
        ledger_.gradients_sharded() ? num_users : num_users * static_cast<size_t>(num_micro_batches_);
    if (state.writers.size() != expected) {
      return Fail(i, "comes after ", state.writers.size(), " of ", expected, " contributions");
    }
    for (int writer : state.writers) {
      if (!Before(writer, i)) return Fail(i, "does not wait for ", Name(writer));
      if (ledger_.gradients_sharded() && At(writer).micro_batch != reduce.micro_batch) {
        return Fail(i, "reduces what ", Name(writer), " wrote");
      }
    }
    if (reduce.first != (state.num_reductions == 0)) {
      return Fail(i, reduce.first ? "overwrites what was reduced before"
                                  : "adds to nothing: it is the first of the step");
    }
    if (reduce.last != (state.num_reductions + 1 == ReductionsPerStep())) {
      return Fail(i, reduce.last ? "is marked last but is not" : "is the last of the step but not marked so");
    }
    if (ledger_.gradients_sharded()) {
      if (!InRange(reduce.slot, slots.size()) ||
          slots[static_cast<size_t>(reduce.slot)].bucket != reduce.bucket) {
        return Fail(i, "reads a gradient slot that does not hold its bucket");
      }
      slots[static_cast<size_t>(reduce.slot)] = {.bucket = -1, .last_reduction = i};
    } else if (reduce.slot != -1) {
      return Fail(i, "names a gradient slot but gradients are not sharded");
    }
    state.writers.clear();
    ++state.num_reductions;
    state.last_reduction = i;
    return absl::OkStatus();
  }

  // ---- loss, norm and update ------------------------------------------------------------------------

  absl::Status CheckForwardOnly() const {
    for (int i = 0; i < size(); ++i) {
      const Op op = At(i).op;
      if (op != Op::kGather && op != Op::kForward && op != Op::kLoss) {
        return Fail(i, "does not belong in a schedule without backward");
      }
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

  absl::Status CheckUpdate() const {
    TRAINCTL_ASSIGN_OR_RETURN(const int count, Single(Op::kCountLossTokens));
    TRAINCTL_ASSIGN_OR_RETURN(const int loss, Single(Op::kReduceLoss));
    TRAINCTL_ASSIGN_OR_RETURN(const int norm, Single(Op::kGradNorm));
    if (!Before(loss, norm)) return Fail(norm, "decides before the loss is known");
    std::vector<int> step(ledger_.buckets().size(), -1), gathered(ledger_.buckets().size(), -1);
    for (int i = 0; i < size(); ++i) {
      const Instruction& instruction = At(i);
      if (instruction.op == Op::kLossAndGradient) {
        if (!Before(count, i)) return Fail(i, "does not know the number of loss tokens yet");
        if (!Before(i, loss)) return Fail(loss, "does not wait for ", Name(i));
      }
      if (instruction.op == Op::kReduceGradient && !Before(i, norm))
        return Fail(norm, "does not wait for ", Name(i));
      std::vector<int>* once = instruction.op == Op::kOptimizerStep   ? &step
                               : instruction.op == Op::kGatherUpdated ? &gathered
                                                                      : nullptr;
      if (once == nullptr) continue;
      int& place = (*once)[static_cast<size_t>(instruction.bucket)];
      if (place >= 0) return Fail(i, "runs a second time");
      place = i;
    }
    const bool gathers = ledger_.optimizer_sharded() && !ledger_.parameters_sharded();
    for (size_t b = 0; b < step.size(); ++b) {
      if (step[b] < 0) return FailWhole("bucket ", b, " is never updated");
      if (!Before(norm, step[b])) return Fail(step[b], "does not wait for the gradient norm");
      if (gathers != (gathered[b] >= 0)) {
        return FailWhole("the updated bucket ", b,
                         gathers ? " is never gathered" : " is gathered but was never cut");
      }
      if (gathers && !Before(step[b], gathered[b]))
        return Fail(gathered[b], "does not wait for ", Name(step[b]));
    }
    return CheckNothingReadsUpdated(step);
  }

  // No instruction of this step may see parameters of the next.
  absl::Status CheckNothingReadsUpdated(const std::vector<int>& step) const {
    for (int i = 0; i < size(); ++i) {
      if (At(i).op == Op::kGather) {
        const int update = step[static_cast<size_t>(At(i).bucket)];
        if (!Before(i, update)) return Fail(i, "may read what ", Name(update), " writes");
      }
      if (!RunsBlock(At(i).op)) continue;
      for (int bucket : ledger_.buckets_of_block(At(i).block)) {
        const int update = step[static_cast<size_t>(bucket)];
        if (!Before(i, update)) return Fail(i, "may read what ", Name(update), " writes");
      }
    }
    return absl::OkStatus();
  }

  const Schedule& schedule_;
  const layout::Ledger& ledger_;
  const int head_;
  const int num_micro_batches_;
  bool training_ = false;
  std::unique_ptr<HappensBefore> order_;
  std::map<std::pair<int, int>, BlockState> blocks_;
  std::vector<GradientState> gradients_;  // by bucket
};

}  // namespace

absl::Status Check(const Schedule& schedule, const layout::Ledger& ledger) {
  return Checker(schedule, ledger).Run();
}

}  // namespace trainctl::schedule
