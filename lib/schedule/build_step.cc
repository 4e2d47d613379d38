#include "schedule/build_step.h"

#include <algorithm>
#include <numeric>
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

BlockTable TableOf(const model::Graph& graph, const BuildOptions& options) {
  BlockTable table;
  std::vector<model::SegmentMemory> of_kind;
  for (const model::Segment& kind : graph.kinds) of_kind.push_back(model::Analyze(kind));
  for (const model::Graph::Block& block : graph.blocks)
    table.memory.push_back(of_kind[static_cast<size_t>(block.kind)]);
  table.hidden_gradient_bytes = graph.border_bytes();
  for (const model::AngleTable& angles : graph.angles) {
    table.rotary_bytes +=
        2 * options.setting.seq_len * (angles.rotated_dim / 2) * static_cast<int64_t>(sizeof(float));
  }
  table.tied = graph.is_tied();
  return table;
}

std::vector<bool> RecomputedBlocks(const BuildOptions& options, const std::vector<int>& stage_begin) {
  const int num_blocks = stage_begin.back();
  std::vector<bool> recomputed(static_cast<size_t>(num_blocks), false);
  for (size_t s = 0; s + 1 < stage_begin.size(); ++s) {
    const int first = std::max(stage_begin[s], model::EmbeddingBlock() + 1);
    const int end = std::min(stage_begin[s + 1], num_blocks - 1);  // the last is the head
    const int64_t num_layers = std::max(0, end - first);
    const auto num = static_cast<std::ptrdiff_t>(NumRecomputed(options, s, num_layers));
    std::fill_n(recomputed.begin() + first, num, true);
  }
  return recomputed;
}

// The communicators of a step, and for each bucket those of the copies that are summed.
class GroupAdder {
 public:
  GroupAdder(const layout::Ledger& ledger, Step& step) : ledger_(ledger), step_(step) {}

  std::vector<Ids> Run() {
    using layout::Axis;
    step_.groups = {{Axis::kDpShard, kGatherStream, {}},
                    {Axis::kDpShard, kReduceStream, {}},
                    {Axis::kDpReplicate, kReduceStream, {}},
                    {Axis::kDpShard, kComputeStream, {}},
                    {Axis::kDpReplicate, kComputeStream, {}}};
    if (step_.programs.size() > 1) {
      std::vector<int> all(step_.programs.size());
      std::iota(all.begin(), all.end(), 0);
      Find({Axis::kPp, kComputeStream, all});
    }
    if (ledger_.mesh().tp > 1) Find({Axis::kTp, kComputeStream, {}});
    std::vector<Ids> of_bucket(ledger_.buckets().size());
    for (const layout::Bucket& bucket : ledger_.buckets()) {
      Ids& groups = of_bucket[static_cast<size_t>(bucket.id)];
      const std::vector<int>& owners = ledger_.owners(bucket.id);
      if (owners.size() > 1) groups.push_back(Find({Axis::kPp, kReduceStream, owners}));
      for (const int copies : ledger_.CopiesOfBucket(bucket.id)) {
        const bool is_whole_axis = copies == ledger_.mesh().tp;
        groups.push_back(Find({Axis::kTp, kReduceStream, {}, is_whole_axis ? 0 : copies}));
      }
    }
    return of_bucket;
  }

 private:
  // Added where it is not there yet.
  int Find(const Group& wanted) {
    for (size_t g = 0; g < step_.groups.size(); ++g) {
      if (step_.groups[g] == wanted) return static_cast<int>(g);
    }
    step_.groups.push_back(wanted);
    return static_cast<int>(step_.groups.size()) - 1;
  }

  const layout::Ledger& ledger_;
  Step& step_;
};

absl::Status BuildWithOrder(const layout::Ledger& ledger, const BuildOptions& options,
                            const PipelineSchedule& order, Step& step) {
  step.order = order.name;
  if (step.has_update) step.optimizer = std::string(options.setting.optimizer->name);
  step.types = options.setting.types;
  step.zero_stage = ledger.zero_stage();
  step.num_micro_batches = options.num_micro_batches;
  step.placement = order.placement;
  BlockTable table = TableOf(*step.graph, options);
  table.recomputed = RecomputedBlocks(options, step.stage_begin);
  ExpandOptions expand;
  expand.recomputed = table.recomputed;
  expand.forward_only = !step.trains;
  // A gather for the backward may have to wait for the forward's slot.
  expand.join = !ledger.parameters_sharded();
  TRAINCTL_ASSIGN_OR_RETURN(const ExpandedOrder expanded, ExpandPasses(order, step, expand));
  step.programs.resize(order.actions.size());
  const std::vector<Ids> copy_groups = GroupAdder(ledger, step).Run();
  for (size_t c = 0; c < step.programs.size(); ++c) {
    TRAINCTL_RETURN_IF_ERROR(ProgramBuilder({.step = &step,
                                             .blocks = &table,
                                             .ledger = &ledger,
                                             .options = &options,
                                             .order = &expanded,
                                             .copy_groups_of_bucket = &copy_groups},
                                            static_cast<int>(c), step.programs[c])
                                 .Build());
  }
  return absl::OkStatus();
}

absl::Status CheckStages(const model::Graph& graph, const BuildOptions& options,
                         const PipelineSchedule& order, const std::vector<int>& stage_begin) {
  const int num_blocks = graph.num_blocks();
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

int64_t NumRecomputed(const BuildOptions& options, size_t stage, int64_t num_layers) {
  if (options.recompute != layout::Recompute::kFull) return 0;
  if (options.recomputed_layers.empty()) return num_layers;
  TRAINCTL_CHECK(stage < options.recomputed_layers.size());
  return std::min(options.recomputed_layers[stage], num_layers);
}

BuildOptions OptionsOf(const layout::Layout& layout, const StepSetting& setting, int64_t max_micro_batches) {
  return {.micro_batch = layout.micro_batch,
          .num_micro_batches = static_cast<int>(std::min(layout.num_micro_batches, max_micro_batches)),
          .micro_batches_of_step = layout.num_micro_batches,
          .recompute = layout.recompute,
          .recomputed_layers = layout.recomputed_layers,
          .setting = setting};
}

std::shared_ptr<const model::Graph> GraphOf(const model::Architecture& spec, const layout::Ledger& ledger,
                                            const BuildOptions& options) {
  return model::BuildGraph(spec, ledger.inventory(), options.segment(ledger));
}

Step BuildStep(std::shared_ptr<const model::Graph> graph, const layout::Ledger& ledger,
               const BuildOptions& options) {
  Step step;
  step.stage_begin = {0, graph->num_blocks()};
  step.graph = std::move(graph);
  const absl::Status built =
      BuildWithOrder(ledger, options, DataParallelOrder(options.num_micro_batches, true), step);
  TRAINCTL_CHECK_MSG(built.ok(), built.message());
  return step;
}

Step BuildForwardOnly(std::shared_ptr<const model::Graph> graph, const layout::Ledger& ledger,
                      const BuildOptions& options) {
  Step step;
  step.trains = step.has_update = false;
  step.stage_begin = {0, graph->num_blocks()};
  step.graph = std::move(graph);
  const absl::Status built =
      BuildWithOrder(ledger, options, DataParallelOrder(options.num_micro_batches, false), step);
  TRAINCTL_CHECK_MSG(built.ok(), built.message());
  return step;
}

absl::StatusOr<Step> BuildStep(std::shared_ptr<const model::Graph> graph, const layout::Ledger& ledger,
                               const BuildOptions& options, const PipelineSchedule& order,
                               std::vector<int> stage_begin) {
  TRAINCTL_RETURN_IF_ERROR(CheckStages(*graph, options, order, stage_begin));
  Step step;
  step.graph = std::move(graph);
  step.stage_begin = std::move(stage_begin);
  TRAINCTL_RETURN_IF_ERROR(BuildWithOrder(ledger, options, order, step));
  return step;
}

absl::StatusOr<Step> BuildForwardOnly(std::shared_ptr<const model::Graph> graph, const layout::Ledger& ledger,
                                      const BuildOptions& options, const PipelineSchedule& order,
                                      std::vector<int> stage_begin) {
  TRAINCTL_RETURN_IF_ERROR(CheckStages(*graph, options, order, stage_begin));
  PipelineSchedule forwards = order;
  for (std::vector<PipelineAction>& actions : forwards.actions) {
    std::erase_if(actions, [](const PipelineAction& action) { return action.op != PipelineOp::kForward; });
    for (PipelineAction& action : actions) action.joined = false;
  }
  Step step;
  step.trains = step.has_update = false;
  step.graph = std::move(graph);
  step.stage_begin = std::move(stage_begin);
  TRAINCTL_RETURN_IF_ERROR(BuildWithOrder(ledger, options, forwards, step));
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
