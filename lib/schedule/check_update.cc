// The end of a step: loss and norm are known when they are needed, each bucket is summed over its copies,
// updated and gathered once, and nothing reads parameters of the next step.

#include "base/status.h"
#include "schedule/program_view.h"

namespace trainctl::schedule {
namespace {

class UpdateChecker : private ProgramView {
 public:
  explicit UpdateChecker(const ProgramView& view) : ProgramView(view) {}

  absl::Status RunWithout() const {
    for (int i = 0; i < size(); ++i) {
      const Op op = At(i).op;
      const bool belongs = op == Op::kGather || op == Op::kSend || op == Op::kReceive || RunsBlock(op);
      if (!belongs) return Fail(i, "does not belong in a step without an update");
    }
    return absl::OkStatus();
  }

  absl::Status Run(const std::vector<int>& last_reductions) const {
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
      const bool sums = op == Op::kReduceGradient || op == Op::kSumCopies;
      if (sums && !Before(i, norm)) return Fail(norm, "does not wait for ", Name(i));
    }
    TRAINCTL_RETURN_IF_ERROR(CheckCopies(last_reductions));
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

 private:
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

  // What others hold as well is summed over them once, when this rank's part is complete.
  absl::Status CheckCopies(const std::vector<int>& last_reductions) const {
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int> sums, OnePerBucket(Op::kSumCopies));
    for (int bucket : ledger_->BucketsOfOwner(class_)) {
      const size_t b = static_cast<size_t>(bucket);
      const bool shared = ledger_->owners(bucket).size() > 1 || !ledger_->CopiesOfBucket(bucket).empty();
      if (shared != (sums[b] >= 0)) {
        return FailWhole("bucket ", bucket,
                         shared ? " is never summed over its copies" : " is summed over copies but has none");
      }
      if (shared && !Before(last_reductions[b], sums[b]))
        return Fail(sums[b], "does not wait for ", Name(last_reductions[b]));
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
};

}  // namespace

absl::Status CheckUpdate(const ProgramView& view, const std::vector<int>& last_reductions) {
  return UpdateChecker(view).Run(last_reductions);
}

absl::Status CheckNoUpdate(const ProgramView& view) { return UpdateChecker(view).RunWithout(); }

}  // namespace trainctl::schedule
