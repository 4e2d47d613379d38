#include "frameworks/pipeline_time.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "cluster/collectives.h"
#include "frameworks/overlap.h"

namespace trainctl::frameworks {
namespace {

constexpr size_t kMostKept = 2'000'000;  // instructions, 20 to 24 bytes each

// A schedule, and how it was played last: layouts that differ in how states are sharded share their passes.
struct Scheduled {
  simulate::PassList passes;
  simulate::PipelineCosts played_with;
  double end_s = -1;  // negative: not played yet
};

// The search prices thousands of jobs with some hundreds of schedules.
class ScheduleCache {
 public:
  // Valid until the next call.
  Scheduled& Get(schedule::PipelineKind kind, const schedule::PipelineShape& shape, bool overlap_sends) {
    const Key key = {kind, shape.ranks, shape.num_micro_batches, shape.virtual_stages, overlap_sends};
    if (const auto kept = kept_.find(key); kept != kept_.end()) return kept->second;
    const auto built = schedule::BuildPipeline(kind, shape);
    TRAINCTL_CHECK_MSG(built.ok(), built.status().message());
    auto made = simulate::MakePassList(*built, /*sends_on_compute=*/!overlap_sends);
    TRAINCTL_CHECK_MSG(made.ok(), made.status().message());
    num_kept_ += made->list.items.size();
    // Mostly of earlier searches.
    if (num_kept_ > kMostKept) {
      kept_.clear();
      num_kept_ = made->list.items.size();
    }
    return kept_.emplace(key, Scheduled{.passes = *std::move(made), .played_with = {}}).first->second;
  }

 private:
  using Key = std::tuple<schedule::PipelineKind, int, int, int, bool>;
  std::map<Key, Scheduled> kept_;
  size_t num_kept_ = 0;  // instructions
};

Scheduled& ScheduleOf(const Workload& w, int64_t micro_batches, bool overlap_sends) {
  thread_local ScheduleCache cache;
  return cache.Get(w.Pipeline(), w.PipelineShapeFor(micro_batches), overlap_sends);
}

// Long steps repeat themselves every `pp` micro-batches: five rounds are played, of short pipelines more.
constexpr int64_t kRounds = 5;
constexpr int64_t kLeastPlayed = 32;
int64_t PlayedMicroBatches(const Workload& w) {
  const int64_t p = w.mesh.pp;
  const int64_t m = w.num_micro_batches();
  const int64_t rounds = std::max(kRounds, kLeastPlayed / p);
  return m <= rounds * p ? m : (rounds - 1) * p + m % p;
}

double Makespan(const Workload& w, const simulate::PipelineCosts& costs, int64_t micro_batches) {
  Scheduled& scheduled = ScheduleOf(w, micro_batches, costs.overlap_sends);
  if (scheduled.end_s >= 0 && scheduled.played_with == costs) return scheduled.end_s;
  const auto end_s = simulate::PlayPassesToEnd(scheduled.passes, costs);
  TRAINCTL_CHECK_MSG(end_s.ok(), end_s.status().message());
  scheduled.played_with = costs;
  scheduled.end_s = *end_s;
  return scheduled.end_s;
}

// `busiest_s`: what the busiest rank does for one micro-batch. No round is shorter than that of all of it.
double StepMakespan(const Workload& w, const simulate::PipelineCosts& costs, double busiest_s) {
  const int64_t m = w.num_micro_batches();
  const int64_t played = PlayedMicroBatches(w);
  const double seconds = Makespan(w, costs, played);
  if (played == m) return seconds;
  const double round =
      std::max(seconds - Makespan(w, costs, played - w.mesh.pp), static_cast<double>(w.mesh.pp) * busiest_s);
  const int64_t rounds_left = (m - played) / w.mesh.pp;
  return seconds + static_cast<double>(rounds_left) * round;
}

// Where a forward and a backward run as one, the exchanges of tokens of either run beside the passes of the
// other (DualPipe: arXiv 2412.19437, section 3.2.1). As a share of the shorter pass.
double JoinedOverlap(const Workload& w, const PassTimes& stage, bool contention) {
  const double forward = stage.ForwardPass();
  const double backward = stage.BackwardPass();
  const double exchanges = stage.expert();
  const double compute = forward + backward - exchanges;
  const double left = SpeedLeft(PlacementOf(w, w.mesh.ep, w.mesh.etp), w, contention);
  const double joined = compute + SecondsBeyondCompute(compute, exchanges, left);
  const double shorter = std::min(forward, backward);
  return shorter > 0 ? std::clamp((forward + backward - joined) / shorter, 0.0, 1.0) : 0;
}

}  // namespace

simulate::PipelineCosts PipelineCostsOf(const Workload& w, const std::vector<PassTimes>& stages,
                                        bool contention) {
  simulate::PipelineCosts costs;
  PassTimes all;
  for (const PassTimes& stage : stages) {
    simulate::StageCosts cost;
    cost.forward_s = stage.ForwardPass();
    cost.input_backward_s = stage.InputBackwardPass();
    cost.weight_backward_s = stage.weight_backward;
    cost.backward_s = stage.BackwardPass();
    costs.stages.push_back(cost);
    all.Add(stage);
  }
  if (w.mesh.pp == 1) return costs;
  costs.joined_overlap = JoinedOverlap(w, all, contention);
  const double bytes =
      w.TokensPerRank() * static_cast<double>(w.model.hidden) * 2 / static_cast<double>(w.mesh.tp);
  const int64_t apart = w.mesh.ranks_per_stage();
  costs.send_s = cluster::CollectiveSeconds(cluster::Collective::kSendRecv, bytes,
                                            {2, apart * 2 <= w.node->gpus ? 2 : 1}, *w.node);
  costs.overlap_sends = !schedule::OrderOf(w.Pipeline()).sends_between_passes;
  return costs;
}

PipelineTimes TimePipeline(const Workload& w, const std::vector<PassTimes>& stages, bool contention) {
  const double m = static_cast<double>(w.num_micro_batches());
  PipelineTimes result;
  if (w.mesh.pp == 1) {
    PassTimes all;
    for (const PassTimes& stage : stages) all.Add(stage);
    result.busiest = all.Times(m);
    return result;
  }
  const simulate::PipelineCosts costs = PipelineCostsOf(w, stages, contention);
  const schedule::PipelinePlacement placement =
      ScheduleOf(w, PlayedMicroBatches(w), costs.overlap_sends).passes.placement;
  std::vector<PassTimes> ranks(static_cast<size_t>(w.mesh.pp));
  for (int copy = 0; copy < placement.num_copies; ++copy) {
    for (size_t s = 0; s < stages.size(); ++s) {
      const int rank = placement.HolderOf(copy, static_cast<int>(s));
      ranks[static_cast<size_t>(rank)].Add(stages[s].Times(m / placement.num_copies));
    }
  }
  result.busiest = *std::max_element(ranks.begin(), ranks.end(), [](const PassTimes& a, const PassTimes& b) {
    return a.total() < b.total();
  });
  const bool joins = schedule::OrderOf(w.Pipeline()).joins_passes();
  const double hidden = joins ? costs.joined_overlap * result.busiest.ForwardPass() : 0;
  result.waiting_seconds =
      StepMakespan(w, costs, (result.busiest.total() - hidden) / m) - result.busiest.total();
  return result;
}

}  // namespace trainctl::frameworks
