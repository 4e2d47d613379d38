// One class's program as the parts of its proof see it, and those parts (check_<part>.cc). Internal to the
// checker, which shares no code with the builder of programs: it is a second witness of what instructions
// mean.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "schedule/check_program.h"
#include "schedule/happens_before.h"

namespace trainctl::schedule {

// Cheap to copy: a part derives from it. What it looks at outlives it.
class ProgramView {
 public:
  // `order` may be null for what asks nothing of Before.
  ProgramView(const Step& step, const layout::Ledger* ledger, int own_class, const HappensBefore* order)
      : step_(step),
        ledger_(ledger),
        class_(own_class),
        program_(step.programs[static_cast<size_t>(own_class)]),
        num_blocks_(step.num_blocks()),
        order_(order) {}

 protected:
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

  static bool InRange(int index, size_t count) { return index >= 0 && static_cast<size_t>(index) < count; }
  template <typename List>
  static bool Contains(const List& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  }

  const Step& step_;
  const layout::Ledger* ledger_;  // null: the step has no parameters
  const int class_;
  const Program& program_;
  const int num_blocks_;

 private:
  const HappensBefore* order_;
};

// Parts of a bucket's gradient, and which of them an instruction writes.
inline constexpr uint8_t kInputPart = 1;   // what is formed with the input gradient
inline constexpr uint8_t kWeightPart = 2;  // and what is not
inline uint8_t PartsWrittenBy(Op op) {
  if (op == Op::kLossAndGradient || op == Op::kBackward) return kInputPart | kWeightPart;
  if (op == Op::kBackwardInput) return kInputPart;
  return op == Op::kBackwardWeight ? kWeightPart : 0;
}

// The parts, in the order in which they run. Each relies on those before it.

// Every index is in range, every instruction on its stream and with its groups.
absl::Status CheckShape(const ProgramView& view);
// Values are written, then read, then freed once.
absl::Status CheckValues(const ProgramView& view);
// Each block runs forward and backward once per micro-batch, on the right values; messages move them.
absl::Status CheckBlocks(const ProgramView& view);
// With a ledger: parameters are gathered into slots, read, replaced.
absl::Status CheckParameters(const ProgramView& view);
// With an update: gradients are written, added to and reduced. By bucket, the last instruction that reduces
// it.
absl::StatusOr<std::vector<int>> CheckGradients(const ProgramView& view);
// Loss, norm, and what becomes of each bucket.
absl::Status CheckUpdate(const ProgramView& view, const std::vector<int>& last_reductions);
// Without an update there is nothing of one.
absl::Status CheckNoUpdate(const ProgramView& view);

}  // namespace trainctl::schedule
