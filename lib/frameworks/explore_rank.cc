#include "frameworks/explore_rank.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace trainctl::frameworks {
namespace {

bool WithinHair(const Score& best, const Score& other, double hair) {
  return best.major == other.major && other.minor <= best.minor * (1 + hair);
}

}  // namespace

Score ScoreOf(const Goal& goal, int64_t num_gpus, double memory_bytes, double step_seconds) {
  const double gpus = static_cast<double>(num_gpus);
  switch (goal.objective) {
    case Objective::kStepTime:
      return {0, step_seconds};
    case Objective::kCost:
      return {0, gpus * step_seconds};
    case Objective::kHeadroom:
      return {0, memory_bytes};
    case Objective::kFewestGpus:
      return {gpus, step_seconds};
  }
  return {};
}

simulate::EffectiveTime EffectiveTimeOf(const Goal& goal, const Choice& choice) {
  simulate::Reliability reliability;
  if (goal.failures.has_value()) {
    reliability.checkpoint_stall_seconds = choice.memory.checkpoint_bytes / simulate::kHostCopyBytesPerSecond;
    reliability.checkpoint_interval_seconds = goal.failures->save_every_seconds;
    reliability.failures_per_gpu_hour = 3600 / goal.failures->gpu_mtbf_seconds;
    reliability.restart_seconds = goal.failures->restart_seconds;
  }
  return simulate::PriceEffectiveTime(choice.time.step_seconds, choice.num_gpus(), reliability);
}

double SlowestStep(const Goal& goal, const Workload& base) {
  if (goal.deadline_seconds <= 0 || goal.tokens <= 0) return kInfinity;
  const double tokens_of_step = static_cast<double>(base.global_batch) * static_cast<double>(base.seq_len);
  return goal.deadline_seconds * tokens_of_step / static_cast<double>(goal.tokens);
}

std::vector<size_t> BestOf(const std::vector<Priced>& priced, const ExploreOptions& options) {
  std::vector<size_t> order(priced.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Score &x = priced[a].score, &y = priced[b].score;
    if (x < y || y < x) return x < y;
    return priced[a].key < priced[b].key;
  });
  std::vector<size_t> best;
  while (!order.empty() && static_cast<int>(best.size()) < options.keep) {
    size_t simplest = 0;
    for (size_t i = 1; i < order.size(); ++i) {
      if (!WithinHair(priced[order[0]].score, priced[order[i]].score, options.hair)) break;
      if (priced[order[i]].key < priced[order[simplest]].key) simplest = i;
    }
    best.push_back(order[simplest]);
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(simplest));
  }
  return best;
}

}  // namespace trainctl::frameworks
