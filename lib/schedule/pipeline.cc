#include "schedule/pipeline.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace trainctl::schedule {
namespace {

// Stages times micro-batches of one schedule at most; as a step, that many take about two gigabytes.
constexpr int64_t kMaxPasses = int64_t{8} << 20;

absl::Status CheckVirtualStages(const PipelineOrder& order, int64_t virtual_stages) {
  const PipelineLimits& limits = order.limits;
  if (virtual_stages >= limits.min_virtual_stages && virtual_stages <= limits.max_virtual_stages) {
    return absl::OkStatus();
  }
  if (limits.max_virtual_stages == 1) {
    return UsageError(absl::StrCat("the ", order.name, " schedule has one stage per rank, not ",
                                   virtual_stages,
                                   "; for several stages per rank take interleaved-1f1b, looped-bfs or "
                                   "interleaved-zb"));
  }
  if (limits.min_virtual_stages == limits.max_virtual_stages) {
    return UsageError(absl::StrCat("the ", order.name, " schedule has exactly ", limits.min_virtual_stages,
                                   " stages per rank, not ", virtual_stages));
  }
  return UsageError(absl::StrCat(
      "the ", order.name, " schedule needs at least ", limits.min_virtual_stages, " stages per rank, not ",
      virtual_stages, virtual_stages == 1 ? absl::StrCat("; with 1 it is ", order.with_one_stage) : ""));
}

PipelinePlacement Place(const PipelineOrder& order, const PipelineShape& shape) {
  PipelinePlacement placement;
  placement.num_ranks = static_cast<int>(shape.ranks);
  placement.num_stages = static_cast<int>(shape.ranks * shape.virtual_stages);
  placement.num_micro_batches = static_cast<int>(shape.num_micro_batches);
  placement.num_copies = order.num_copies();
  for (int copy = 0; copy < placement.num_copies; ++copy) {
    for (int stage = 0; stage < placement.num_stages; ++stage)
      placement.stage_ranks.push_back(static_cast<int>(order.RankOf(copy, stage, shape.ranks)));
  }
  return placement;
}

constexpr std::array<absl::string_view, kNumPipelineOps> kOpNames = {"forward", "backward", "input backward",
                                                                     "weight backward"};

}  // namespace

std::vector<std::string> PipelineKindNames() {
  std::vector<std::string> names;
  for (const PipelineOrder* order : kPipelineOrders) names.emplace_back(order->name);
  return names;
}

absl::StatusOr<PipelineKind> ParsePipelineKind(absl::string_view name) {
  for (int k = 0; k < kNumPipelineKinds; ++k) {
    const auto kind = static_cast<PipelineKind>(k);
    if (PipelineKindName(kind) == name) return kind;
  }
  return UsageError(absl::StrCat("there is no pipeline schedule '", name.substr(0, 64),
                                 "'; there are: ", absl::StrJoin(PipelineKindNames(), ", ")));
}

absl::Status CheckPipelineShape(PipelineKind kind, const PipelineShape& shape) {
  const PipelineOrder& order = OrderOf(kind);
  if (shape.ranks < 1) {
    return UsageError(absl::StrCat("a pipeline has at least 1 rank, not ", shape.ranks));
  }
  if (shape.num_micro_batches < 1) {
    return UsageError(
        absl::StrCat("a pipeline has at least 1 micro-batch per step, not ", shape.num_micro_batches));
  }
  TRAINCTL_RETURN_IF_ERROR(CheckVirtualStages(order, shape.virtual_stages));
  // Factors are bounded first, so that their product cannot overflow.
  if (std::max({shape.ranks, shape.virtual_stages, shape.num_micro_batches}) > kMaxPasses ||
      shape.ranks * shape.virtual_stages > kMaxPasses ||
      shape.ranks * shape.virtual_stages * shape.num_micro_batches > kMaxPasses) {
    return UsageError(absl::StrCat(shape.ranks, " ranks x ", shape.virtual_stages, " stages x ",
                                   shape.num_micro_batches, " micro-batches are more than the ", kMaxPasses,
                                   " that one schedule may have; take fewer micro-batches"));
  }
  if (order.limits.even_ranks && shape.ranks % 2 != 0) {
    return UsageError(absl::StrCat("the ", order.name, " schedule needs an even number of ranks, not ",
                                   shape.ranks, "; ", shape.ranks + 1, " would do, or dualpipev"));
  }
  const int64_t least = int64_t{order.limits.micro_batches_per_rank} * shape.ranks;
  if (shape.num_micro_batches < least) {
    return UsageError(absl::StrCat("the ", order.name, " schedule on ", shape.ranks, " ranks needs at least ",
                                   least, " micro-batches, not ", shape.num_micro_batches,
                                   "; zbv takes any number"));
  }
  if (order.limits.even_micro_batches && shape.num_micro_batches % 2 != 0) {
    return UsageError(absl::StrCat("the ", order.name,
                                   " schedule needs an even number of micro-batches, not ",
                                   shape.num_micro_batches, "; ", shape.num_micro_batches + 1, " would do"));
  }
  return absl::OkStatus();
}

absl::string_view PipelineOpName(PipelineOp op) { return kOpNames[static_cast<size_t>(op)]; }

char PipelinePassLetter(PipelineOp op) { return absl::string_view("FBIW")[static_cast<size_t>(op)]; }

std::vector<int> PipelinePlacement::StagesOf(int rank) const {
  std::vector<int> stages;
  for (size_t i = 0; i < stage_ranks.size(); ++i) {
    if (stage_ranks[i] == rank) stages.push_back(static_cast<int>(i) % num_stages);
  }
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages;
}

absl::StatusOr<PipelineSchedule> BuildPipeline(PipelineKind kind, const PipelineShape& shape) {
  TRAINCTL_RETURN_IF_ERROR(CheckPipelineShape(kind, shape));
  const PipelineOrder& order = OrderOf(kind);
  PipelineSchedule schedule;
  schedule.name = std::string(order.name);
  schedule.placement = Place(order, shape);
  schedule.actions.resize(static_cast<size_t>(shape.ranks));
  // Two copies share the micro-batches, so a rank has the same number of passes either way.
  const size_t passes =
      static_cast<size_t>(shape.virtual_stages) * static_cast<size_t>(shape.num_micro_batches);
  for (std::vector<PipelineAction>& actions : schedule.actions) {
    actions.reserve(passes * (order.splits_backward ? 3 : 2));
  }
  order.build(schedule);
  return schedule;
}

absl::StatusOr<PipelinePlacement> PlacePipeline(PipelineKind kind, const PipelineShape& shape) {
  TRAINCTL_RETURN_IF_ERROR(CheckPipelineShape(kind, shape));
  return Place(OrderOf(kind), shape);
}

std::vector<int> PeaksInFlight(const PipelineSchedule& schedule) {
  std::vector<int> peaks;
  for (const std::vector<PipelineAction>& actions : schedule.actions) {
    int in_flight = 0, peak = 0;
    for (const PipelineAction& action : actions) {
      if (action.op == PipelineOp::kForward) peak = std::max(peak, ++in_flight);
      if (action.op == PipelineOp::kBackward || action.op == PipelineOp::kBackwardWeight) --in_flight;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::string DescribePass(PipelineOp op, int stage, int micro_batch) {
  return absl::StrCat(PipelineOpName(op), " of stage ", stage, ", micro-batch ", micro_batch);
}

}  // namespace trainctl::schedule
