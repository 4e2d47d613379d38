#include "schedule/pipeline.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "schedule/pipeline_builders.h"

namespace trainctl::schedule {
namespace {

// Where stages lie.
enum class Layout : uint8_t { kLooped, kV, kBothEnds };

struct KindRow {
  absl::string_view name;
  PipelineLimits limits;
  Layout layout;
  void (*build)(PipelineSchedule&);
  absl::string_view with_one_stage;  // what it is with one stage per rank, where that is refused
};

constexpr int kAnyNumber = 1 << 20;

constexpr PipelineLimits Single(bool splits) { return {.splits_backward = splits}; }
constexpr PipelineLimits Looped(bool splits) {
  return {.min_virtual_stages = 2, .max_virtual_stages = kAnyNumber, .splits_backward = splits};
}
constexpr PipelineLimits TwoInAV(int micro_batches_per_rank) {
  return {.min_virtual_stages = 2,
          .max_virtual_stages = 2,
          .micro_batches_per_rank = micro_batches_per_rank,
          .splits_backward = true};
}
constexpr PipelineLimits kDual = {
    .even_ranks = true, .even_micro_batches = true, .micro_batches_per_rank = 2, .splits_backward = true};

constexpr std::array<KindRow, kNumPipelineKinds> kKinds = {{
    {"gpipe", Single(false), Layout::kLooped, BuildGPipe, ""},
    {"1f1b", Single(false), Layout::kLooped, Build1F1B, ""},
    {"interleaved-1f1b", Looped(false), Layout::kLooped, BuildInterleaved1F1B, "1f1b"},
    {"looped-bfs", Looped(false), Layout::kLooped, BuildLoopedBreadthFirst, "gpipe"},
    {"zb-h1", Single(true), Layout::kLooped, BuildZbH1, ""},
    {"zb-h2", Single(true), Layout::kLooped, BuildZbH2, ""},
    {"interleaved-zb", Looped(true), Layout::kLooped, BuildInterleavedZeroBubble, "zb-h1"},
    {"zbv", TwoInAV(0), Layout::kV, BuildZbv, ""},
    {"v-half", TwoInAV(0), Layout::kV, BuildVHalf, ""},
    {"v-min", TwoInAV(0), Layout::kV, BuildVMin, ""},
    {"dualpipe", kDual, Layout::kBothEnds, BuildDualPipe, ""},
    {"dualpipev", TwoInAV(2), Layout::kV, BuildDualPipeV, ""},
}};

// Stages times micro-batches of one schedule at most; as a step, that many take about two gigabytes.
constexpr int64_t kMaxPasses = int64_t{8} << 20;

const KindRow& RowOf(PipelineKind kind) { return kKinds[static_cast<size_t>(kind)]; }

absl::Status CheckVirtualStages(const KindRow& row, int virtual_stages) {
  const PipelineLimits& limits = row.limits;
  if (virtual_stages >= limits.min_virtual_stages && virtual_stages <= limits.max_virtual_stages) {
    return absl::OkStatus();
  }
  if (limits.max_virtual_stages == 1) {
    return UsageError(absl::StrCat("the ", row.name, " schedule has one stage per rank, not ", virtual_stages,
                                   "; for several stages per rank take interleaved-1f1b, looped-bfs or "
                                   "interleaved-zb"));
  }
  if (limits.min_virtual_stages == limits.max_virtual_stages) {
    return UsageError(absl::StrCat("the ", row.name, " schedule has exactly ", limits.min_virtual_stages,
                                   " stages per rank, not ", virtual_stages));
  }
  return UsageError(absl::StrCat(
      "the ", row.name, " schedule needs at least ", limits.min_virtual_stages, " stages per rank, not ",
      virtual_stages, virtual_stages == 1 ? absl::StrCat("; with 1 it is ", row.with_one_stage) : ""));
}

void Place(const KindRow& row, const PipelineShape& shape, PipelinePlacement& placement) {
  const int p = shape.ranks;
  placement.num_ranks = p;
  placement.num_stages = p * shape.virtual_stages;
  placement.num_micro_batches = shape.num_micro_batches;
  placement.num_copies = row.layout == Layout::kBothEnds ? 2 : 1;
  for (int stage = 0; stage < placement.num_stages; ++stage) {
    const bool descends = row.layout == Layout::kV && stage / p % 2 == 1;
    placement.stage_ranks.push_back(descends ? p - 1 - stage % p : stage % p);
  }
  if (row.layout == Layout::kBothEnds) {
    for (int stage = 0; stage < placement.num_stages; ++stage) placement.stage_ranks.push_back(p - 1 - stage);
  }
}

constexpr std::array<absl::string_view, kNumPipelineOps> kOpNames = {"forward", "backward", "input backward",
                                                                     "weight backward"};

}  // namespace

absl::string_view PipelineKindName(PipelineKind kind) { return RowOf(kind).name; }

absl::StatusOr<PipelineKind> ParsePipelineKind(absl::string_view name) {
  std::vector<absl::string_view> names;
  for (size_t k = 0; k < kKinds.size(); ++k) {
    if (kKinds[k].name == name) return static_cast<PipelineKind>(k);
    names.push_back(kKinds[k].name);
  }
  return UsageError(absl::StrCat("there is no pipeline schedule '", name.substr(0, 64),
                                 "'; there are: ", absl::StrJoin(names, ", ")));
}

PipelineLimits LimitsOf(PipelineKind kind) { return RowOf(kind).limits; }

absl::Status CheckPipelineShape(PipelineKind kind, const PipelineShape& shape) {
  const KindRow& row = RowOf(kind);
  if (shape.ranks < 1) {
    return UsageError(absl::StrCat("a pipeline has at least 1 rank, not ", shape.ranks));
  }
  if (shape.num_micro_batches < 1) {
    return UsageError(
        absl::StrCat("a pipeline has at least 1 micro-batch per step, not ", shape.num_micro_batches));
  }
  TRAINCTL_RETURN_IF_ERROR(CheckVirtualStages(row, shape.virtual_stages));
  // Factors are bounded first, so that their product cannot overflow.
  const int64_t stages = int64_t{shape.ranks} * shape.virtual_stages;
  if (stages > kMaxPasses || stages * shape.num_micro_batches > kMaxPasses) {
    return UsageError(absl::StrCat(shape.ranks, " ranks x ", shape.virtual_stages, " stages x ",
                                   shape.num_micro_batches, " micro-batches are more than the ", kMaxPasses,
                                   " that one schedule may have; take fewer micro-batches"));
  }
  if (row.limits.even_ranks && shape.ranks % 2 != 0) {
    return UsageError(absl::StrCat("the ", row.name, " schedule needs an even number of ranks, not ",
                                   shape.ranks, "; ", shape.ranks + 1, " would do, or dualpipev"));
  }
  const int64_t least = int64_t{row.limits.micro_batches_per_rank} * shape.ranks;
  if (shape.num_micro_batches < least) {
    return UsageError(absl::StrCat("the ", row.name, " schedule on ", shape.ranks, " ranks needs at least ",
                                   least, " micro-batches, not ", shape.num_micro_batches,
                                   "; zbv takes any number"));
  }
  if (row.limits.even_micro_batches && shape.num_micro_batches % 2 != 0) {
    return UsageError(absl::StrCat("the ", row.name, " schedule needs an even number of micro-batches, not ",
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
  const KindRow& row = RowOf(kind);
  PipelineSchedule schedule;
  schedule.name = std::string(row.name);
  Place(row, shape, schedule.placement);
  schedule.actions.resize(static_cast<size_t>(shape.ranks));
  // Two copies share the micro-batches, so a rank has the same number of passes either way.
  const size_t passes =
      static_cast<size_t>(shape.virtual_stages) * static_cast<size_t>(shape.num_micro_batches);
  for (std::vector<PipelineAction>& actions : schedule.actions) {
    actions.reserve(passes * (row.limits.splits_backward ? 3 : 2));
  }
  row.build(schedule);
  return schedule;
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
