#include "plan/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/step_hash.h"

namespace trainctl::plan {

const Candidate& Chosen(const Plan& plan) {
  const auto chosen = std::find_if(plan.candidates.begin(), plan.candidates.end(),
                                   [](const Candidate& candidate) { return candidate.chosen; });
  TRAINCTL_CHECK_MSG(chosen != plan.candidates.end(), "a plan without a chosen layout");
  return *chosen;
}

PlannedStep BuildStep(const Plan& plan, const model::Architecture& spec) {
  absl::StatusOr<PlannedStep> planned =
      schedule::BuildLayoutStep(spec, model::Inventory(spec), plan.layout, plan.setting);
  TRAINCTL_CHECK_MSG(planned.ok(), planned.status().message());
  return *std::move(planned);
}

absl::StatusOr<PlannedStep> RebuildStep(const Plan& plan, const model::Architecture& spec) {
  if (plan.step_hash.empty()) {
    return EnvironmentError("the plan has no step: it is of an earlier version; resume plans the run again");
  }
  TRAINCTL_ASSIGN_OR_RETURN(PlannedStep planned, schedule::BuildLayoutStep(spec, model::Inventory(spec),
                                                                           plan.layout, plan.setting));
  const std::string hash = schedule::HashStep(planned.step, planned.ledger);
  if (hash != plan.step_hash) {
    return EnvironmentError(
        absl::StrCat("the plan is for step ", plan.step_hash, " and this program builds ", hash,
                     " from it: trainctl and trainctl-worker are of different builds, or the "
                     "plan was edited; install both together and launch again"));
  }
  TRAINCTL_RETURN_IF_ERROR(schedule::Check(planned.step, planned.ledger).status());
  return planned;
}

}  // namespace trainctl::plan
