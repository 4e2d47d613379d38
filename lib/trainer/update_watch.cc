#include "trainer/update_watch.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "data/counted_targets.h"
#include "optim/update_limits.h"
#include "trainer/batch_reader.h"
#include "trainer/finite_weights.h"
#include "trainer/progress.h"

namespace trainctl::trainer {

UpdateWatch::UpdateWatch(const WorkerDeps& deps, const parallel::ShardedState& state, comm::Group& world,
                         CheckpointSaver& saver, RunCounters& counters)
    : deps_(deps), state_(state), world_(world), saver_(saver), counters_(counters) {}

absl::Status UpdateWatch::CheckFinite(const ComputedStep& computed) {
  const parallel::StepResult& result = computed.result;
  if (result.finite) return absl::OkStatus();
  const std::string what =
      absl::StrFormat("step %d: loss %g, gradient norm %g are not finite (learning rate %.3g)",
                      counters_.step + 1, result.loss, result.grad_norm, computed.scheduled_lr);
  if (deps_.recipe->train.on_nonfinite == "skip") {
    if (deps_.is_first_rank()) PrintLine("warning: " + what + "; skipping the update");
    return absl::OkStatus();
  }
  const std::string checkpoint = saver_.FinishAndDescribe();
  TRAINCTL_ASSIGN_OR_RETURN(const bool has_finite_weights, AllWeightsAreFinite(state_, world_));
  return CheckFailedError(
      absl::StrCat(what, has_finite_weights ? "; all weights are" : "; some of the weights are not",
                   " finite; ", checkpoint));
}

void UpdateWatch::Count(const parallel::StepResult& result) {
  const bool has_targets = result.loss_tokens > 0;
  counters_.updates += result.finite && has_targets ? 1 : 0;
  counters_.skipped += result.finite ? 0 : 1;
  if (!result.finite) {
    ++skipped_in_a_row_;
  } else if (has_targets) {
    skipped_in_a_row_ = 0;
  }
  without_targets_in_a_row_ = has_targets ? 0 : without_targets_in_a_row_ + 1;
  if (has_targets || !deps_.is_first_rank()) return;
  PrintLine(absl::StrCat("warning: step ", counters_.step + 1,
                         ": none of the targets in this step's batch count toward the loss: ",
                         data::kNoTargetsCause, "; skipping the update"));
}

bool UpdateWatch::HasSkippedTooMany() const { return skipped_in_a_row_ >= optim::kMostSkippedInARow; }

bool UpdateWatch::HasStalled() const {
  return HasSkippedTooMany() || without_targets_in_a_row_ >= optim::kMostStepsWithoutTargets;
}

absl::Status UpdateWatch::StallError(const ComputedStep& computed) {
  const int64_t step = counters_.step;
  const std::string checkpoint = saver_.FinishAndDescribe();
  if (!HasSkippedTooMany()) {
    return BadDataError(
        absl::StrFormat("no target counted toward the loss in %d consecutive steps (%d to %d): %s. "
                        "`trainctl data batch RECIPE --step %d` shows a batch with its loss mask. Add "
                        "completions to the examples, or launch a run with a larger data.seq_len; %s",
                        without_targets_in_a_row_, step - without_targets_in_a_row_ + 1, step,
                        data::kNoTargetsCause, step, checkpoint));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const bool has_finite_weights, AllWeightsAreFinite(state_, world_));
  const bool holds_these = saver_.saved_step() >= step - skipped_in_a_row_;
  return CheckFailedError(absl::StrFormat(
      "step %d: loss %g, gradient norm %g are not finite (learning rate %.3g); %d consecutive updates were "
      "skipped (%d of %d in total), %s; %s",
      step, computed.result.loss, computed.result.grad_norm, computed.lr, skipped_in_a_row_,
      counters_.skipped, step,
      has_finite_weights ? "so the weights are probably no longer usable, although all of them are finite"
                         : "because some of the weights are not finite",
      holds_these
          ? absl::StrCat("the last checkpoint, at step ", saver_.saved_step(), ", has the same weights")
          : checkpoint));
}

void UpdateWatch::PrintSummary() const {
  const int64_t without_targets = counters_.step - counters_.updates - counters_.skipped;
  if (counters_.skipped > 0) {
    PrintLine(
        absl::StrFormat("warning: %d of %d updates were skipped because their gradients were not finite",
                        counters_.skipped, counters_.step));
  }
  if (without_targets > 0) {
    PrintLine(absl::StrFormat(
        "warning: %d of %d steps made no update because no target in their batch counted toward the loss",
        without_targets, counters_.step));
  }
}

}  // namespace trainctl::trainer
