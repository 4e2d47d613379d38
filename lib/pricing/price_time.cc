#include "pricing/price_time.h"

#include <algorithm>

#include "base/status.h"
#include "cluster/collectives.h"
#include "pricing/operator_time.h"
#include "pricing/price_memory.h"
#include "schedule/pipeline_simulate.h"

namespace trainctl::pricing {
namespace {

using cluster::Collective;

class Pricer {
 public:
  explicit Pricer(const Workload& workload) : w_(workload) {}

  TimePrice Price() {
    PriceStages();
    PricePipeline();
    PriceDataParallel();
    PriceOptimizer();
    price_.step_seconds = price_.compute_seconds + price_.recompute_seconds + price_.tensor_seconds +
                          price_.expert_seconds + price_.context_seconds + price_.pipeline_seconds +
                          price_.data_seconds + price_.optimizer_seconds;
    return price_;
  }

 private:
  // One layer or one stage, one micro-batch.
  struct Parts {
    double forward = 0, backward = 0, recompute = 0, tensor = 0, expert = 0, context = 0;
    double total() const { return forward + backward + recompute + tensor + expert + context; }
    void Add(const Parts& o) {
      forward += o.forward;
      backward += o.backward;
      recompute += o.recompute;
      tensor += o.tensor;
      expert += o.expert;
      context += o.context;
    }
  };

  cluster::GroupPlacement PlacementOf(int64_t ranks, int64_t stride) const {
    const int64_t per_node = std::max<int64_t>(1, w_.node->gpus / std::max<int64_t>(1, stride));
    return {static_cast<int>(ranks), static_cast<int>(std::min(ranks, per_node))};
  }

  Parts LayerParts(int64_t layer) const {
    const LayerWork work = WorkOfLayer(w_, layer);
    Parts parts;
    double attention = 0;
    for (const WorkItem& item : work.items) {
      const ForwardBackward seconds = OperatorSeconds(item, w_);
      if (item.kind == WorkKind::kAttention) attention += seconds.forward + seconds.backward;
      parts.forward += seconds.forward;
      parts.backward += seconds.backward;
      parts.recompute += RecomputedShare(item) * seconds.forward;
    }
    const double passes = w_.recompute == RecomputeKind::kFull ? 3 : 2;  // forward, backward, forward again
    if (work.tensor_parallel_bytes > 0) parts.tensor = passes * TensorSeconds(work.tensor_parallel_bytes);
    if (work.expert_bytes > 0) {
      const double one = cluster::CollectiveSeconds(Collective::kAllToAll, work.expert_bytes,
                                                    PlacementOf(w_.degrees.ep, 1), *w_.node);
      parts.expert = passes * 2 * one;
    }
    if (w_.degrees.cp > 1) parts.context = ContextSeconds(attention);
    return parts;
  }

  double RecomputedShare(const WorkItem& item) const {
    if (w_.recompute == RecomputeKind::kNone) return 0;
    if (w_.recompute == RecomputeKind::kFull) return 1;
    // Selective: Megatron's is the scores alone.
    if (!w_.framework->selects_operators) {
      return w_.framework->attention == AttentionKernel::kScores && item.kind == WorkKind::kAttention ? 1 : 0;
    }
    return item.kind == WorkKind::kElementwise ? 1 : item.share_recomputed_by_selection;
  }

  // Two exchanges a layer and pass: an all-reduce each, or a gather and a scatter of the same size.
  double TensorSeconds(double bytes) const {
    const cluster::GroupPlacement group = PlacementOf(w_.degrees.tp, 1);
    double seconds = 0;
    if (w_.SequenceParallel()) {
      seconds = 2 * (cluster::CollectiveSeconds(Collective::kAllGather, bytes, group, *w_.node) +
                     cluster::CollectiveSeconds(Collective::kReduceScatter, bytes, group, *w_.node));
    } else {
      seconds = 2 * cluster::CollectiveSeconds(Collective::kAllReduce, bytes, group, *w_.node);
    }
    // Cut into as many pieces as there are ranks, all but the first run beside the products.
    return w_.framework->overlap_tensor_parallel ? seconds / static_cast<double>(w_.degrees.tp) : seconds;
  }

  // Keys and values pass round the ring beside attention; what attention does not cover is exposed.
  double ContextSeconds(double attention) const {
    const double tokens = w_.TokensPerRank();
    const double width =
        static_cast<double>(2 * w_.model.kv_heads * w_.model.head_dim) / static_cast<double>(w_.degrees.tp);
    const double bytes = tokens * std::max(1.0, width) * 2;
    const double hop = cluster::CollectiveSeconds(Collective::kSendRecv, bytes,
                                                  {2, w_.degrees.tp * 2 <= w_.node->gpus ? 2 : 1}, *w_.node);
    const double steps = static_cast<double>(w_.degrees.cp - 1);
    return std::max(0.0, 3 * steps * hop - attention);
  }

  Parts HeadParts() const {
    const ForwardBackward seconds = HeadSeconds(w_);
    Parts parts;
    parts.forward = seconds.forward;
    parts.backward = seconds.backward;
    return parts;
  }

  void PriceStages() {
    std::vector<Parts> kinds(2);
    const int64_t dense = w_.model.experts.has_value() ? w_.model.experts->dense_layers : w_.model.layers;
    if (dense > 0) kinds[0] = LayerParts(0);
    if (dense < w_.model.layers) kinds[1] = LayerParts(w_.model.layers - 1);
    const int64_t num_stages = w_.degrees.pp * w_.degrees.virtual_stages;
    std::vector<Parts> ranks(static_cast<size_t>(w_.degrees.pp));
    for (int64_t s = 0; s < num_stages; ++s) {
      const LayerRange range = LayersOfStage(w_, s);
      Parts stage;
      for (int64_t i = 0; i < range.count; ++i) stage.Add(kinds[range.first + i < dense ? 0 : 1]);
      if (s == num_stages - 1) stage.Add(HeadParts());
      stages_.push_back(stage);
      ranks[static_cast<size_t>(s % w_.degrees.pp)].Add(stage);
    }
    slowest_ = *std::max_element(ranks.begin(), ranks.end(),
                                 [](const Parts& a, const Parts& b) { return a.total() < b.total(); });
    const double m = static_cast<double>(w_.num_micro_batches());
    price_.compute_seconds = m * (slowest_.forward + slowest_.backward);
    price_.recompute_seconds = m * slowest_.recompute;
    price_.tensor_seconds = m * slowest_.tensor;
    price_.expert_seconds = m * slowest_.expert;
    price_.context_seconds = m * slowest_.context;
  }

  // What the schedule takes beyond the work of its slowest rank: the bubble, uneven stages, exposed
  // transfers.
  void PricePipeline() {
    if (w_.degrees.pp == 1) return;
    schedule::PipelineCosts costs;
    // Of the exchanges of a pass, the forward has one part in as many as there are passes.
    const double forwards = w_.recompute == RecomputeKind::kFull ? 1.0 / 3 : 1.0 / 2;
    for (const Parts& stage : stages_) {
      schedule::StageCosts cost;
      cost.forward_s = stage.forward + forwards * (stage.tensor + stage.expert + stage.context);
      cost.backward_s = stage.total() - cost.forward_s;
      costs.stages.push_back(cost);
    }
    const double bytes =
        w_.TokensPerRank() * static_cast<double>(w_.model.hidden) * 2 / static_cast<double>(w_.degrees.tp);
    const int64_t apart = w_.degrees.tp * w_.degrees.cp * w_.degrees.dp;
    costs.send_s = cluster::CollectiveSeconds(Collective::kSendRecv, bytes,
                                              {2, apart * 2 <= w_.node->gpus ? 2 : 1}, *w_.node);
    // Megatron-LM sends beside the passes where it interleaves, and between them where it does not.
    costs.overlap_sends = w_.degrees.virtual_stages > 1;
    const double m = static_cast<double>(w_.num_micro_batches());
    price_.pipeline_seconds = std::max(0.0, PipelineMakespan(costs) - m * slowest_.total());
  }

  // Once the pipeline is full every p micro-batches take the same time, so that long steps need not be
  // played.
  double PipelineMakespan(const schedule::PipelineCosts& costs) const {
    const int64_t p = w_.degrees.pp;
    const int64_t m = w_.num_micro_batches();
    const int64_t played = m <= 5 * p ? m : 4 * p + m % p;
    const double seconds = Makespan(costs, played);
    if (played == m) return seconds;
    const int64_t more_rounds = (m - played) / p;
    return seconds + static_cast<double>(more_rounds) * (seconds - Makespan(costs, played - p));
  }

  double Makespan(const schedule::PipelineCosts& costs, int64_t micro_batches) const {
    const auto built = schedule::BuildPipeline(w_.Pipeline(), w_.PipelineShapeFor(micro_batches));
    TRAINCTL_CHECK_MSG(built.ok(), built.status().message());
    const auto lowered = schedule::LowerPipeline(*built);
    TRAINCTL_CHECK_MSG(lowered.ok(), lowered.status().message());
    const auto times = schedule::SimulatePipeline(*lowered, costs);
    TRAINCTL_CHECK_MSG(times.ok(), times.status().message());
    return times->makespan_s;
  }

  void PriceDataParallel() {
    const Degrees& d = w_.degrees;
    const int64_t ranks = d.dp * d.cp;
    if (ranks == 1) return;
    const RankParameters own = ParametersOfRank(w_, 0);
    if (d.zero_stage == 3) return PriceFullySharded(own);

    const cluster::GroupPlacement group = PlacementOf(ranks, d.tp);
    const int64_t expert_ranks = std::max<int64_t>(1, ranks * d.tp / d.ep);
    const cluster::GroupPlacement expert_group = PlacementOf(expert_ranks, d.ep);
    const auto exchange = [&](Collective op, double bytes_per_element) {
      return cluster::CollectiveSeconds(op, own.dense() * bytes_per_element, group, *w_.node) +
             (own.experts > 0
                  ? cluster::CollectiveSeconds(op, own.experts * bytes_per_element, expert_group, *w_.node)
                  : 0);
    };
    double reduce = 0, gather = 0;
    if (d.zero_stage == 0) {
      reduce = exchange(Collective::kAllReduce, w_.framework->gradient_bytes);
    } else {
      reduce = exchange(Collective::kReduceScatter, w_.framework->gradient_bytes);
      gather = exchange(Collective::kAllGather, 2);
    }
    if (w_.framework->overlap_data_parallel) {
      // The last micro-batch's backward covers the reductions, the first one's forward the gathers.
      reduce = std::max(reduce * 0.05, reduce - slowest_.backward);
      gather = std::max(gather * 0.05, gather - slowest_.forward);
    }
    price_.data_seconds = reduce + gather;
  }

  // Each block is gathered for the forward and again for the backward, and its gradient scattered, beside the
  // block before it: of compute and communication the longer counts, micro-batch by micro-batch.
  void PriceFullySharded(const RankParameters& own) {
    const Degrees& d = w_.degrees;
    const cluster::GroupPlacement group = PlacementOf(d.shard_group, d.tp);
    const double layers = static_cast<double>(w_.model.layers) / static_cast<double>(d.pp);
    const double elements = (own.layers + own.experts) / layers;
    const double gather = cluster::CollectiveSeconds(Collective::kAllGather, elements * 2, group, *w_.node);
    const double scatter = cluster::CollectiveSeconds(
        Collective::kReduceScatter, elements * w_.framework->gradient_bytes, group, *w_.node);
    const double m = static_cast<double>(w_.num_micro_batches());
    const double forward = (slowest_.forward + slowest_.tensor / 2) / layers;
    const double backward = (slowest_.backward + slowest_.recompute + slowest_.tensor / 2) / layers;
    price_.data_seconds =
        m * layers * (std::max(0.0, gather - forward) + std::max(0.0, gather + scatter - backward));
    // The first gather and the last scatter have nothing to hide behind.
    price_.data_seconds += m * (gather + scatter);
    price_.data_seconds += m * ShardedCopySeconds(w_, own.all());
    if (own.tables > 0) {
      price_.data_seconds +=
          m * cluster::CollectiveSeconds(Collective::kAllGather, own.tables * 2, group, *w_.node);
    }
    if (d.dp > d.shard_group) {
      price_.data_seconds += cluster::CollectiveSeconds(
          Collective::kAllReduce,
          (own.layers + own.experts) * w_.framework->gradient_bytes / static_cast<double>(d.shard_group),
          PlacementOf(d.dp / d.shard_group, d.shard_group * d.tp), *w_.node);
    }
  }

  void PriceOptimizer() {
    const Degrees& d = w_.degrees;
    const RankParameters parameters = ParametersOfRank(w_, 0);
    const double own = d.zero_stage >= 1 ? ShardedElements(parameters, w_) : parameters.all();
    price_.optimizer_seconds = OptimizerSeconds(w_, own);
  }

  const Workload& w_;
  std::vector<Parts> stages_;
  Parts slowest_;
  TimePrice price_;
};

}  // namespace

TimePrice PriceTime(const Workload& workload) { return Pricer(workload).Price(); }

}  // namespace trainctl::pricing
