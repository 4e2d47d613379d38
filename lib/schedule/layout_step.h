// Builds the steps of a layout. This is the single place where a mesh, a pipeline and the settings of a step
// become a ledger and programs. Pure functions; thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const LayoutStep planned,
//                             BuildLayoutStep(spec, model::Inventory(spec), layout, setting));
//   const Program& program = planned.ProgramOf(rank);
#pragma once

#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "layout/layout.h"
#include "layout/ledger.h"
#include "model/architecture.h"
#include "model/parameters.h"
#include "schedule/build_step.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// The step that the workers run, with the options and ledger that it was built from.
struct LayoutStep {
  BuildOptions options;
  layout::Ledger ledger;
  Step step;

  // The program that a global rank runs.
  const Program& ProgramOf(int rank) const {
    return step.programs[static_cast<size_t>(ledger.mesh().coordinate(rank, layout::Axis::kPp))];
  }
};

// Returns the pipeline schedule, or only its placement, of a layout with a pipeline. Returns the same errors
// as CheckPipelineLayout.
absl::StatusOr<PipelineSchedule> OrderOfLayout(const layout::Layout& layout);
absl::StatusOr<PipelinePlacement> PlacementOfLayout(const layout::Layout& layout);

// Builds the step of a layout. `inventory` must be that of `spec`. Without a pipeline, the step has at most
// `max_micro_batches` micro-batches. With a pipeline, it always has all of them. Returns the errors of
// CheckPipelineLayout and BuildStep. Always succeeds without a pipeline.
absl::StatusOr<LayoutStep> BuildLayoutStep(const model::Architecture& spec,
                                           std::vector<model::Parameter> inventory,
                                           const layout::Layout& layout, const StepSetting& setting,
                                           int64_t max_micro_batches = std::numeric_limits<int>::max());

// Builds an evaluation with the same layout: the forward and loss of every micro-batch. `planned` must be the
// result of BuildLayoutStep for this layout.
Step BuildLayoutForwards(const layout::Layout& layout, const LayoutStep& planned);

// Returns UsageError if the schedule of the layout's pipeline does not exist or does not support the layout's
// ranks, stages or micro-batches. If the layout lists its passes itself, also returns BadDataError if they do
// not parse.
absl::Status CheckPipelineLayout(const layout::Layout& layout);

}  // namespace trainctl::schedule
