// Values of a program: each is written before it is read, and freed once, after its last reader.

#include "base/status.h"
#include "schedule/program_view.h"

namespace trainctl::schedule {
namespace {

class ValueChecker : private ProgramView {
 public:
  explicit ValueChecker(const ProgramView& view) : ProgramView(view) {}

  absl::Status Run() const {
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

 private:
  struct ValueState {
    int writer = -1;
    int freer = -1;
    Ids readers;
  };

  std::string ValueName(int value) const { return NameOf(ValueAt(value)); }
};

}  // namespace

absl::Status CheckValues(const ProgramView& view) { return ValueChecker(view).Run(); }

}  // namespace trainctl::schedule
