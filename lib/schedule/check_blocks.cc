// Each block runs forward and backward once per micro-batch, where its stage lies, and reads and writes the
// right values; messages move what the class at the other end has or needs.

#include <algorithm>
#include <array>
#include <utility>

#include "base/status.h"
#include "model/segment.h"
#include "schedule/program_view.h"

namespace trainctl::schedule {
namespace {

class BlockChecker : private ProgramView {
 public:
  explicit BlockChecker(const ProgramView& view) : ProgramView(view) {}

  absl::Status Run() {
    rows_.assign(static_cast<size_t>(num_blocks_), -1);
    int num_rows = 0;
    for (int stage : step_.placement.StagesOf(class_)) {
      const size_t s = static_cast<size_t>(stage);
      for (int block = step_.stage_begin[s]; block < step_.stage_begin[s + 1]; ++block)
        rows_[static_cast<size_t>(block)] = num_rows++;
    }
    blocks_.resize(static_cast<size_t>(num_rows) * static_cast<size_t>(step_.num_micro_batches));
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

 private:
  // What one block of one micro-batch has done so far.
  struct BlockState {
    int forward = -1;  // also kLoss and kLossAndGradient
    int recompute = -1;
    int backward = -1;  // also kBackwardInput and kLossAndGradient
    int weights = -1;   // also kBackward and kLossAndGradient
    int saved = -1;     // value: what its backward reads, if anything
  };

  BlockState& StateOf(int block, int m) {
    return blocks_[static_cast<size_t>(rows_[static_cast<size_t>(block)]) *
                       static_cast<size_t>(step_.num_micro_batches) +
                   static_cast<size_t>(m)];
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
    bool Matches(const BlockChecker& checker, const Ids& values, int micro_batch) const {
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

  std::vector<int> rows_;           // by block; -1: it lies on other classes
  std::vector<BlockState> blocks_;  // [row, micro-batch]
};

}  // namespace

absl::Status CheckBlocks(const ProgramView& view) { return BlockChecker(view).Run(); }

}  // namespace trainctl::schedule
