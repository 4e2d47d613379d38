// From a layout to its steps: the one place where a mesh, a pipeline and the settings of a step become a
// ledger and programs. Pure; thread safe.
#pragma once

#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "layout/layout.h"
#include "layout/ledger.h"
#include "model/model_spec.h"
#include "schedule/build_step.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// What the workers run, and what it was built from.
struct LayoutStep {
  BuildOptions options;
  layout::Ledger ledger;
  Step step;

  // Of a global rank.
  const Program& ProgramOf(int rank) const {
    return step.programs[static_cast<size_t>(ledger.mesh().coordinate(rank, layout::Axis::kPp))];
  }
};

// The order of a layout with a pipeline. UsageError as below.
absl::StatusOr<PipelineSchedule> OrderOfLayout(const layout::Layout& layout);
absl::StatusOr<PipelinePlacement> PlacementOfLayout(const layout::Layout& layout);

// `inventory`: that of `spec`. Of data parallelism at most `max_micro_batches` are built; a pipeline has them
// all. UsageError: the order of the layout's pipeline cannot be built for its shape.
absl::StatusOr<LayoutStep> BuildLayoutStep(const model::ModelSpec& spec,
                                           std::vector<model::Parameter> inventory,
                                           const layout::Layout& layout, const StepSetting& setting,
                                           int64_t max_micro_batches = std::numeric_limits<int>::max());

// Evaluation with the same layout: forward and loss of every micro-batch. `planned`: what BuildLayoutStep
// made.
Step BuildLayoutForwards(const model::ModelSpec& spec, const layout::Layout& layout,
                         const LayoutStep& planned);

// UsageError says what of a pipeline's shape its order does not do, and what it would.
absl::Status CheckPipelineLayout(const layout::Layout& layout);

}  // namespace trainctl::schedule
