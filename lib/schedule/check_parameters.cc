// Parameters are gathered into slots before they are read there, and replaced after their last reader.

#include "base/status.h"
#include "model/segment.h"
#include "schedule/program_view.h"

namespace trainctl::schedule {
namespace {

class ParameterChecker : private ProgramView {
 public:
  explicit ParameterChecker(const ProgramView& view) : ProgramView(view) {}

  absl::Status Run() const {
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

 private:
  struct ParameterSlotState {
    int gather = -1;
    std::vector<int> readers;  // of what it holds now
  };

  absl::Status CheckGather(int i, std::vector<ParameterSlotState>& slots) const {
    const Instruction& gather = At(i);
    if (!ledger_->parameters_sharded()) return Fail(i, "but parameters are not sharded");
    if (!InRange(gather.slot, slots.size())) return Fail(i, "fills slot ", gather.slot, " of ", slots.size());
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
};

}  // namespace

absl::Status CheckParameters(const ProgramView& view) { return ParameterChecker(view).Run(); }

}  // namespace trainctl::schedule
