#include "pricing/bounds.h"

#include <algorithm>

#include "pricing/price_time.h"

namespace trainctl::pricing {
namespace {

// Sums of doubles in another order than the price's.
constexpr double kRounding = 1 - 1e-9;

bool HasLayersOf(const Architecture& model, bool moe) {
  const int64_t dense =
      model.experts.has_value() ? std::min(model.experts->dense_layers, model.layers) : model.layers;
  return moe ? dense < model.layers : dense > 0;
}

// The job of `layers` layers of one kind on one pipeline rank, of one micro-batch, with nothing sharded.
Workload SmallJob(const Workload& w, int64_t layers, bool moe) {
  Workload job = w;
  job.model.layers = layers;
  if (job.model.experts.has_value()) job.model.experts->dense_layers = moe ? 0 : layers;
  job.stage_layers.clear();
  job.pipeline = std::nullopt;
  job.degrees.pp = 1;
  job.degrees.virtual_stages = 1;
  job.degrees.zero_stage = 0;
  job.degrees.shard_group = 1;
  job.degrees.dp = std::max<int64_t>(1, w.degrees.ep * w.degrees.etp / (w.degrees.tp * w.degrees.cp));
  job.global_batch = job.micro_batch * job.degrees.dp;
  return job;
}

double WorkSeconds(const Workload& job) {
  const TimePrice price = PriceTime(job);
  return price.compute_seconds + price.recompute_seconds + price.tensor_seconds + price.expert_seconds +
         price.context_seconds;
}

void Add(LayerCounts& to, const LayerCounts& counts) {
  to.dense += counts.dense;
  to.moe += counts.moe;
}

}  // namespace

StageCounts StageCountsOf(const Workload& w) {
  StageCounts counts;
  const int64_t pp = w.degrees.pp;
  counts.num_stages = pp * w.degrees.virtual_stages;
  counts.ranks.resize(static_cast<size_t>(pp));
  const int64_t dense = w.model.experts.has_value() ? w.model.experts->dense_layers : w.model.layers;
  LayerCounts before;
  for (int64_t s = 0; s < counts.num_stages; ++s) {
    const LayerRange range = LayersOfStage(w, s);
    const int64_t plain = std::clamp<int64_t>(dense - range.first, 0, range.count);
    const LayerCounts stage = {plain, range.count - plain};
    if (s < pp) counts.before.push_back(before);
    Add(before, stage);
    Add(counts.ranks[static_cast<size_t>(s % pp)], stage);
  }
  return counts;
}

TimeTerms TimeTermsOf(const Workload& w) {
  TimeTerms terms;
  double of_one = 0, of_layer = 0;
  for (const bool moe : {false, true}) {
    if (!HasLayersOf(w.model, moe)) continue;
    of_one = WorkSeconds(SmallJob(w, 1, moe));
    of_layer = WorkSeconds(SmallJob(w, 2, moe)) - of_one;
    (moe ? terms.moe_layer : terms.dense_layer) = of_layer;
  }
  terms.ends = std::max(0.0, of_one - of_layer);
  return terms;
}

double PipelineSeconds(const TimeTerms& terms, const StageCounts& counts, schedule::PipelineKind kind,
                       int64_t num_micro_batches) {
  const double m = static_cast<double>(num_micro_batches);
  const size_t pp = counts.ranks.size();
  const schedule::PipelineLimits limits = schedule::LimitsOf(kind);
  // A V and a DualPipe lay their stages otherwise: on average a rank has an equal share, wherever they lie.
  if (pp > 1 && limits.splits_backward) {
    double all = terms.ends;
    for (const LayerCounts& rank : counts.ranks) all += terms.Of(rank);
    return kRounding * m * all / static_cast<double>(pp);
  }
  double seconds = 0;
  for (size_t r = 0; r < pp; ++r) {
    const double own = terms.Of(counts.ranks[r]) + (r + 1 == pp ? terms.ends : 0);
    seconds = std::max(seconds, terms.Of(counts.before[r]) + m * own);
  }
  return kRounding * seconds;
}

}  // namespace trainctl::pricing
