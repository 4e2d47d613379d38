#include "schedule/build_step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/expand_passes.h"
#include "schedule/program_builder.h"

namespace trainctl::schedule {
namespace {

// Forward, backward, and the next micro-batch.
PipelineSchedule DataParallelOrder(int num_micro_batches, bool trains) {
  PipelineSchedule order;
  order.name = "data parallel";
  order.placement = {
      .num_ranks = 1, .num_stages = 1, .num_micro_batches = num_micro_batches, .stage_ranks = {0}};
  order.actions.resize(1);
  for (int m = 0; m < num_micro_batches; ++m) {
    order.actions[0].push_back({PipelineOp::kForward, false, 0, m});
    if (trains) order.actions[0].push_back({PipelineOp::kBackward, false, 0, m});
  }
  return order;
}

BlockTable TableOf(const model::ModelSpec& spec, const layout::Ledger& ledger, const BuildOptions& options) {
  const model::SegmentOptions segment = options.segment();
  const int head = model::HeadBlock(spec);
  BlockTable table;
  for (int block = 0; block <= head; ++block) {
    // The layers are alike: the first stands for all.
    if (block > 1 && block < head) {
      table.memory.push_back(table.memory[1]);
      continue;
    }
    table.memory.push_back(model::Analyze(model::BuildSegment(spec, ledger.inventory(), block, segment)));
  }
  table.hidden_gradient_bytes =
      options.shape().tokens() * spec.hidden * DTypeBytes(options.setting.types.compute);
  table.rotary_bytes =
      2 * options.setting.seq_len * (spec.head_dim / 2) * static_cast<int64_t>(sizeof(float));
  table.tied = spec.tie_embeddings;
  return table;
}

// The communicators of a step, and for each bucket that of the classes that share it.
std::vector<int> AddGroups(const layout::Ledger& ledger, Step& step) {
  using layout::Axis;
  step.groups = {{Axis::kDpShard, kGatherStream, {}},
                 {Axis::kDpShard, kReduceStream, {}},
                 {Axis::kDpReplicate, kReduceStream, {}},
                 {Axis::kDpShard, kComputeStream, {}},
                 {Axis::kDpReplicate, kComputeStream, {}}};
  std::vector<int> owner_group(ledger.buckets().size(), -1);
  if (step.programs.size() == 1) return owner_group;
  std::vector<int> all;
  for (size_t c = 0; c < step.programs.size(); ++c) all.push_back(static_cast<int>(c));
  step.groups.push_back({Axis::kPp, kComputeStream, all});
  for (size_t b = 0; b < owner_group.size(); ++b) {
    const std::vector<int>& owners = ledger.owners(static_cast<int>(b));
    if (owners.size() < 2) continue;
    for (size_t g = kScalarPipelineGroup + 1; g < step.groups.size(); ++g) {
      if (step.groups[g].classes == owners) owner_group[b] = static_cast<int>(g);
    }
    if (owner_group[b] >= 0) continue;
    owner_group[b] = static_cast<int>(step.groups.size());
    step.groups.push_back({Axis::kPp, kReduceStream, owners});
  }
  return owner_group;
}

absl::Status BuildWithOrder(const model::ModelSpec& spec, const layout::Ledger& ledger,
                            const BuildOptions& options, const PipelineSchedule& order, Step& step) {
  step.order = order.name;
  if (step.has_update) step.optimizer = std::string(options.setting.optimizer->name);
  step.types = options.setting.types;
  step.zero_stage = ledger.zero_stage();
  step.num_micro_batches = options.num_micro_batches;
  step.placement = order.placement;
  const BlockTable table = TableOf(spec, ledger, options);
  ExpandOptions expand;
  expand.recompute = options.recompute == layout::Recompute::kFull;
  expand.forward_only = !step.trains;
  // A gather for the backward may have to wait for the forward's slot.
  expand.join = !ledger.parameters_sharded();
  TRAINCTL_ASSIGN_OR_RETURN(const ExpandedOrder expanded, ExpandPasses(order, step, expand));
  step.programs.resize(order.actions.size());
  const std::vector<int> owner_group = AddGroups(ledger, step);
  for (size_t c = 0; c < step.programs.size(); ++c) {
    TRAINCTL_RETURN_IF_ERROR(ProgramBuilder({.step = &step,
                                             .blocks = &table,
                                             .ledger = &ledger,
                                             .options = &options,
                                             .order = &expanded,
                                             .owner_group_of_bucket = &owner_group},
                                            static_cast<int>(c), step.programs[c])
                                 .Build());
  }
  return absl::OkStatus();
}

absl::Status CheckStages(const model::ModelSpec& spec, const BuildOptions& options,
                         const PipelineSchedule& order, const std::vector<int>& stage_begin) {
  const int num_blocks = model::HeadBlock(spec) + 1;
  const size_t num_stages = static_cast<size_t>(order.placement.num_stages);
  const bool ascends =
      stage_begin.size() == num_stages + 1 && stage_begin.front() == 0 && stage_begin.back() == num_blocks &&
      std::adjacent_find(stage_begin.begin(), stage_begin.end(), std::greater_equal<int>()) ==
          stage_begin.end();
  if (!ascends) {
    return UsageError(absl::StrCat("the ", num_stages, " stages of pipeline schedule ", order.name,
                                   " need at least a block each of the model's ", num_blocks));
  }
  if (options.num_micro_batches != order.placement.num_micro_batches) {
    return UsageError(absl::StrCat("pipeline schedule ", order.name, " is for ",
                                   order.placement.num_micro_batches, " micro-batches, the step has ",
                                   options.num_micro_batches));
  }
  return absl::OkStatus();
}

// A step of an order's passes alone, without its programs: each stage is a block.
Step ShapeOfPasses(const PipelineSchedule& order) {
  Step step;
  step.order = order.name;
  step.has_head = step.has_update = false;
  step.num_micro_batches = order.placement.num_micro_batches;
  step.placement = order.placement;
  for (int stage = 0; stage <= std::max(0, order.placement.num_stages); ++stage)
    step.stage_begin.push_back(stage);
  return step;
}

}  // namespace

BuildOptions OptionsOf(const layout::Layout& layout, const StepSetting& setting, int64_t max_micro_batches) {
  return {.micro_batch = layout.micro_batch,
          .num_micro_batches = static_cast<int>(std::min(layout.num_micro_batches, max_micro_batches)),
          .micro_batches_of_step = layout.num_micro_batches,
          .recompute = layout.recompute,
          .setting = setting};
}

Step BuildStep(const model::ModelSpec& spec, const layout::Ledger& ledger, const BuildOptions& options) {
  Step step;
  step.stage_begin = {0, model::HeadBlock(spec) + 1};
  const absl::Status built =
      BuildWithOrder(spec, ledger, options, DataParallelOrder(options.num_micro_batches, true), step);
  TRAINCTL_CHECK_MSG(built.ok(), built.message());
  return step;
}

Step BuildForwardOnly(const model::ModelSpec& spec, const layout::Ledger& ledger,
                      const BuildOptions& options) {
  Step step;
  step.trains = step.has_update = false;
  step.stage_begin = {0, model::HeadBlock(spec) + 1};
  const absl::Status built =
      BuildWithOrder(spec, ledger, options, DataParallelOrder(options.num_micro_batches, false), step);
  TRAINCTL_CHECK_MSG(built.ok(), built.message());
  return step;
}

absl::StatusOr<Step> BuildStep(const model::ModelSpec& spec, const layout::Ledger& ledger,
                               const BuildOptions& options, const PipelineSchedule& order,
                               std::vector<int> stage_begin) {
  TRAINCTL_RETURN_IF_ERROR(CheckStages(spec, options, order, stage_begin));
  Step step;
  step.stage_begin = std::move(stage_begin);
  TRAINCTL_RETURN_IF_ERROR(BuildWithOrder(spec, ledger, options, order, step));
  return step;
}

absl::StatusOr<Step> BuildForwardOnly(const model::ModelSpec& spec, const layout::Ledger& ledger,
                                      const BuildOptions& options, const PipelineSchedule& order,
                                      std::vector<int> stage_begin) {
  TRAINCTL_RETURN_IF_ERROR(CheckStages(spec, options, order, stage_begin));
  PipelineSchedule forwards = order;
  for (std::vector<PipelineAction>& actions : forwards.actions) {
    std::erase_if(actions, [](const PipelineAction& action) { return action.op != PipelineOp::kForward; });
    for (PipelineAction& action : actions) action.joined = false;
  }
  Step step;
  step.trains = step.has_update = false;
  step.stage_begin = std::move(stage_begin);
  TRAINCTL_RETURN_IF_ERROR(BuildWithOrder(spec, ledger, options, forwards, step));
  return step;
}

absl::StatusOr<Step> ExpandOrder(const PipelineSchedule& order, bool sends_on_compute) {
  Step step = ShapeOfPasses(order);
  step.programs.reserve(order.actions.size());
  TRAINCTL_RETURN_IF_ERROR(ExpandOrderByClass(
      order, sends_on_compute, [&](int, Program& program) { step.programs.push_back(std::move(program)); }));
  return step;
}

absl::Status ExpandOrderByClass(const PipelineSchedule& order, bool sends_on_compute,
                                absl::FunctionRef<void(int own_class, Program& program)> visit) {
  const Step shape = ShapeOfPasses(order);
  TRAINCTL_ASSIGN_OR_RETURN(const ExpandedOrder expanded, ExpandPasses(order, shape, {}));
  BlockTable table;
  table.memory.resize(shape.stage_begin.size());
  const BuildOptions options;
  Program program;
  for (int c = 0; c < static_cast<int>(order.actions.size()); ++c) {
    program.Clear();
    TRAINCTL_RETURN_IF_ERROR(ProgramBuilder({.step = &shape,
                                             .blocks = &table,
                                             .options = &options,
                                             .order = &expanded,
                                             .sends_on_compute = sends_on_compute},
                                            c, program)
                                 .Build());
    visit(c, program);
  }
  return absl::OkStatus();
}

std::vector<std::vector<int>> OwnersOf(const PipelineSchedule& order, const std::vector<int>& stage_begin) {
  const PipelinePlacement& place = order.placement;
  std::vector<std::vector<int>> owners;
  for (int stage = 0; stage < place.num_stages; ++stage) {
    std::vector<int> of_stage;
    for (int copy = 0; copy < place.num_copies; ++copy) of_stage.push_back(place.HolderOf(copy, stage));
    std::sort(of_stage.begin(), of_stage.end());
    of_stage.erase(std::unique(of_stage.begin(), of_stage.end()), of_stage.end());
    const size_t s = static_cast<size_t>(stage);
    owners.insert(owners.end(), static_cast<size_t>(stage_begin[s + 1] - stage_begin[s]), of_stage);
  }
  return owners;
}

}  // namespace trainctl::schedule
