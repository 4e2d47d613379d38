#include "trainer/evaluation.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "data/counted_targets.h"
#include "layout/ledger.h"
#include "trainer/progress.h"

namespace trainctl::trainer {
namespace {

// Prints how far an evaluation is, from its tenth second on, so that a long one is not taken for a hang.
class EvaluationProgress {
 public:
  EvaluationProgress(const WorkerDeps& deps, const std::vector<data::EvalSet>& sets)
      : deps_(deps), next_line_(deps.clock->Monotonic() + absl::Seconds(10)) {
    for (const data::EvalSet& set : sets) num_batches_ += set.num_batches;
  }

  void BatchDone() {
    ++num_done_;
    const absl::Duration now = deps_.clock->Monotonic();
    if (!deps_.is_first_rank() || num_done_ == num_batches_ || now < next_line_) return;
    PrintLine(absl::StrCat("evaluating: ", num_done_, " of ", num_batches_, " batches"));
    next_line_ = now + absl::Seconds(30);
  }

 private:
  const WorkerDeps& deps_;
  absl::Duration next_line_;
  int64_t num_batches_ = 0;
  int64_t num_done_ = 0;
};

}  // namespace

Evaluation::Evaluation(const WorkerDeps& deps, const PlannedRun& planned,
                       const std::vector<data::EvalSet>& sets, const BatchReader& batches,
                       parallel::Executor& executor, DataFilesCheck& data_files, Votes& votes)
    : deps_(deps),
      planned_(planned),
      sets_(sets),
      batches_(batches),
      executor_(executor),
      data_files_(data_files),
      votes_(votes) {}

absl::StatusOr<std::optional<EvalLosses>> Evaluation::Run() {
  TRAINCTL_RETURN_IF_ERROR(data_files_.Run());
  EvalLosses losses;
  EvaluationProgress progress(deps_, sets_);
  for (const data::EvalSet& set : sets_) {
    double sums[2] = {0, 0};
    for (int64_t i = 0; i < set.num_batches; ++i) {
      const absl::StatusOr<data::Batch> batch = batches_.Read(*set.source, i);
      TRAINCTL_ASSIGN_OR_RETURN(const EvaluationVote vote, votes_.DuringEvaluation(!batch.ok()));
      if (vote.stop) return std::optional<EvalLosses>();
      if (vote.lacks_data) return data_files_.EndForLackOfData(batch.status());
      TRAINCTL_ASSIGN_OR_RETURN(
          const parallel::EvalSums part,
          executor_.RunForward(planned_.evaluation, MicroBatches(*batch, planned_.training)));
      sums[0] += part.loss;
      sums[1] += static_cast<double>(part.loss_tokens);
      progress.BatchDone();
    }
    TRAINCTL_RETURN_IF_ERROR(executor_.SumOverRanks(layout::kEvalReduction, sums));
    losses[set.name] = sums[1] > 0 ? std::optional<double>(sums[0] / sums[1]) : std::nullopt;
    if (sums[1] > 0 || !deps_.is_first_rank() || !without_targets_.insert(set.name).second) continue;
    PrintLine(
        absl::StrCat("warning: evaluation set '", set.name,
                     "' has no loss, because none of its targets count toward it: ", data::kNoTargetsCause));
  }
  // The last batch may have taken long.
  TRAINCTL_RETURN_IF_ERROR(votes_.DuringEvaluation(/*lacks_data=*/false).status());
  return losses;
}

}  // namespace trainctl::trainer
