#include "trainer/votes.h"

#include <optional>

#include "base/status.h"

namespace trainctl::trainer {
namespace {

double Vote(bool yes) { return yes ? 1.0 : 0.0; }

}  // namespace

Votes::Votes(const WorkerDeps& deps, const layout::Mesh& mesh, parallel::Executor& executor,
             comm::Group& world, CheckpointSaver& saver, const RunCounters& counters)
    : deps_(deps),
      recipe_(*deps.recipe),
      mesh_(mesh),
      executor_(executor),
      world_(world),
      saver_(saver),
      counters_(counters) {}

absl::StatusOr<bool> Votes::BeforeFirstStep(bool lacks_line) {
  const bool asked = deps_.control->Poll().kind == DirectiveKind::kStopAfterSave;
  double votes[] = {Vote(asked), Vote(lacks_line)};
  TRAINCTL_RETURN_IF_ERROR(world_.AllReduceScalars("stop", votes));
  stop_asked_ = votes[0] > 0;
  return votes[1] > 0;
}

absl::StatusOr<EvaluationVote> Votes::DuringEvaluation(bool lacks_data) {
  const Directive directive = deps_.control->Poll();
  if (directive.kind == DirectiveKind::kAbort) return WorkerError("told to abort: " + directive.reason);
  const OwnSave save = saver_.LookAtOwn();
  double votes[] = {Vote(directive.kind == DirectiveKind::kStopAfterSave), Vote(save.busy), Vote(save.failed),
                    Vote(lacks_data)};
  TRAINCTL_RETURN_IF_ERROR(executor_.CountVotes(votes));
  stop_asked_ = stop_asked_ || votes[0] > 0;
  TRAINCTL_RETURN_IF_ERROR(saver_.Advance(save, votes[1] > 0, votes[2] > 0));
  return EvaluationVote{stop_asked_, votes[3] > 0 && !stop_asked_};
}

absl::StatusOr<Agreement> Votes::AfterStep(const BatchHash& hash, bool lacks_data) {
  const Directive directive = deps_.control->Poll();
  if (directive.kind == DirectiveKind::kAbort) return WorkerError("told to abort: " + directive.reason);
  const bool time_is_up = saver_.IsTimeUp();
  const OwnSave own_save = saver_.LookAtOwn();
  const bool counts_batch = CountsBatch();
  double votes[] = {Vote(directive.kind == DirectiveKind::kStopAfterSave),
                    Vote(deps_.is_first_rank() && time_is_up),
                    Vote(own_save.busy),
                    Vote(own_save.failed),
                    Vote(deps_.is_first_rank() && directive.saves_asked > saves_made_),
                    Vote(lacks_data),
                    counts_batch ? hash.low : 0,
                    counts_batch ? hash.high : 0};
  TRAINCTL_RETURN_IF_ERROR(executor_.CountVotes(votes));
  stop_asked_ = votes[0] > 0;
  const std::optional<int64_t>& every_steps = recipe_.checkpoint.every_steps;
  const bool due = votes[1] > 0 || (every_steps.has_value() && counters_.step % *every_steps == 0);
  saves_made_ = directive.saves_asked;
  TRAINCTL_RETURN_IF_ERROR(saver_.Advance(own_save, votes[2] > 0, votes[3] > 0));

  Agreement agreed;
  agreed.stop = stop_asked_ || StopsAfterThisStep();
  agreed.lacks_data = votes[5] > 0;
  const bool wanted = votes[4] > 0 || agreed.lacks_data;
  agreed.save = wanted ? SaveKind::kWanted : due ? SaveKind::kDue : SaveKind::kNone;
  agreed.batch_hash = JoinHash({votes[6], votes[7]});
  return agreed;
}

bool Votes::StopsAfterThisStep() const {
  return deps_.stop_after >= 0 && counters_.step >= deps_.stop_after && counters_.step < recipe_.train.steps;
}

// Every stage of a pipeline has the same sequences, and so has every rank of tensor parallelism.
bool Votes::CountsBatch() const {
  return mesh_.coordinate(deps_.rank, layout::Axis::kPp) == 0 &&
         mesh_.coordinate(deps_.rank, layout::Axis::kTp) == 0;
}

}  // namespace trainctl::trainer
