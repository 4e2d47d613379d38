#include "schedule/layout_step.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/pipeline.h"
#include "schedule/pipeline_file.h"

namespace trainctl::schedule {
namespace {

PipelineShape ShapeOf(const layout::Layout& layout) {
  return {layout.mesh.pp, layout.num_micro_batches, layout.pipeline.virtual_stages};
}

absl::StatusOr<PipelineSchedule> OwnPasses(const layout::Layout& layout) {
  TRAINCTL_ASSIGN_OR_RETURN(PipelineSchedule order, ReadPasses(layout.pipeline.passes));
  const PipelineShape shape = ShapeOf(layout);
  const PipelinePlacement& place = order.placement;
  if (place.num_ranks != shape.ranks || place.num_stages != shape.ranks * shape.virtual_stages ||
      place.num_micro_batches != shape.num_micro_batches) {
    return UsageError(absl::StrCat("these passes are of ", place.num_ranks, " ranks, ", place.num_stages,
                                   " stages and ", place.num_micro_batches, " micro-batches, not of ",
                                   shape.ranks, ", ", shape.ranks * shape.virtual_stages, " and ",
                                   shape.num_micro_batches));
  }
  return order;
}

}  // namespace

absl::StatusOr<PipelineSchedule> OrderOfLayout(const layout::Layout& layout) {
  if (layout.pipeline.HasOwnPasses()) return OwnPasses(layout);
  TRAINCTL_ASSIGN_OR_RETURN(const PipelineKind kind, ParsePipelineKind(layout.pipeline.order));
  return BuildPipeline(kind, ShapeOf(layout));
}

absl::StatusOr<PipelinePlacement> PlacementOfLayout(const layout::Layout& layout) {
  if (layout.pipeline.HasOwnPasses()) {
    TRAINCTL_ASSIGN_OR_RETURN(PipelineSchedule order, OwnPasses(layout));
    return std::move(order.placement);
  }
  TRAINCTL_ASSIGN_OR_RETURN(const PipelineKind kind, ParsePipelineKind(layout.pipeline.order));
  return PlacePipeline(kind, ShapeOf(layout));
}

absl::Status CheckPipelineLayout(const layout::Layout& layout) {
  if (layout.pipeline.HasOwnPasses()) return OwnPasses(layout).status();
  TRAINCTL_ASSIGN_OR_RETURN(const PipelineKind kind, ParsePipelineKind(layout.pipeline.order));
  return CheckPipelineShape(kind, ShapeOf(layout));
}

absl::StatusOr<LayoutStep> BuildLayoutStep(const model::Architecture& spec,
                                           std::vector<model::Parameter> inventory,
                                           const layout::Layout& layout, const StepSetting& setting,
                                           int64_t max_micro_batches) {
  if (layout.mesh.pp == 1) {
    const BuildOptions options = OptionsOf(layout, setting, max_micro_batches);
    layout::Ledger ledger(std::move(inventory), layout.mesh, layout.zero_stage, {}, layout.sequence_parallel);
    Step step = BuildStep(GraphOf(spec, ledger, options), ledger, options);
    return LayoutStep{options, std::move(ledger), std::move(step)};
  }
  const BuildOptions options = OptionsOf(layout, setting);
  TRAINCTL_ASSIGN_OR_RETURN(const PipelineSchedule order, OrderOfLayout(layout));
  const std::vector<int> stages = layout::StageBegins(layout.pipeline.stage_layers);
  layout::Ledger ledger(std::move(inventory), layout.mesh, layout.zero_stage, OwnersOf(order, stages),
                        layout.sequence_parallel);
  TRAINCTL_ASSIGN_OR_RETURN(Step step,
                            BuildStep(GraphOf(spec, ledger, options), ledger, options, order, stages));
  return LayoutStep{options, std::move(ledger), std::move(step)};
}

Step BuildLayoutForwards(const layout::Layout& layout, const LayoutStep& planned) {
  if (layout.mesh.pp == 1) return BuildForwardOnly(planned.step.graph, planned.ledger, planned.options);
  const absl::StatusOr<PipelineSchedule> order = OrderOfLayout(layout);
  TRAINCTL_CHECK_MSG(order.ok(), order.status().message());
  absl::StatusOr<Step> step = BuildForwardOnly(planned.step.graph, planned.ledger, planned.options, *order,
                                               layout::StageBegins(layout.pipeline.stage_layers));
  TRAINCTL_CHECK_MSG(step.ok(), step.status().message());
  return *std::move(step);
}

}  // namespace trainctl::schedule
