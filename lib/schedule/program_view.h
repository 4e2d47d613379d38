// Internal to the checker: the parts of the proof of one class's program (check_<part>.cc), and the view of
// the program that they share. The checker shares no code with the builder of programs, so that a mistake in
// the builder's understanding of an instruction is not repeated here.
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

// A view of one program, from which the parts of the proof derive. Cheap to copy. The arguments of the
// constructor must outlive it.
class ProgramView {
 public:
  // `order` may be null if Before() is not called.
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
  const layout::Ledger* ledger_;  // null if the step has no parameters
  const int class_;
  const Program& program_;
  const int num_blocks_;

 private:
  const HappensBefore* order_;
};

// The two parts of a bucket's gradient.
inline constexpr uint8_t kInputPart =
    1;  // gradients computed with the input gradient (norms, biases, embedding)
inline constexpr uint8_t kWeightPart = 2;  // the other gradients (weight matrices)
// Returns the parts that an instruction writes.
inline uint8_t PartsWrittenBy(Op op) {
  if (op == Op::kLossAndGradient || op == Op::kBackward) return kInputPart | kWeightPart;
  if (op == Op::kBackwardInput) return kInputPart;
  return op == Op::kBackwardWeight ? kWeightPart : 0;
}

// The parts of the proof, in the order in which they run. Each relies on the ones before it. All return
// InternalError on failure (CheckFailure).

// Every index is in range, and every instruction is on the right stream and has the right groups.
absl::Status CheckShape(const ProgramView& view);
// Every value that is not persistent is written once, then read, then freed once.
absl::Status CheckValues(const ProgramView& view);
// Each block runs forward and backward once per micro-batch and reads and writes the right values. Messages
// transfer the right values between the right classes.
absl::Status CheckBlocks(const ProgramView& view);
// Requires a ledger. Parameters are gathered into slots before they are read, and replaced only after their
// last reader.
absl::Status CheckParameters(const ProgramView& view);
// Requires a step with an update. Gradients are overwritten first, then added to, and reduced once complete.
// Returns the last instruction that reduces each bucket, or -1 if the class does not hold the bucket.
absl::StatusOr<std::vector<int>> CheckGradients(const ProgramView& view);
// Requires a step with an update. The loss and norm are known before they are needed, and each bucket is
// summed over its copies, updated and, for ZeRO-1 and ZeRO-2, gathered once.
absl::Status CheckUpdate(const ProgramView& view, const std::vector<int>& last_reductions);
// Requires a step without an update. It contains only gathers, messages and passes over blocks.
absl::Status CheckNoUpdate(const ProgramView& view);

}  // namespace trainctl::schedule
