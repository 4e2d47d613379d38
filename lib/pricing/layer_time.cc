#include "pricing/layer_time.h"

#include <algorithm>
#include <cmath>

#include "cluster/collectives.h"
#include "pricing/operator_time.h"
#include "pricing/overlap.h"
#include "pricing/update_time.h"

namespace trainctl::pricing {
namespace {

using cluster::Collective;

constexpr double kHalf = 2;  // bytes of an activation

class LayerTimer {
 public:
  LayerTimer(const Workload& workload, int64_t layer, const LayerSwitches& switches, bool contention)
      : w_(workload),
        layer_(layer),
        recomputed_(switches.recomputed),
        offloaded_(switches.offloaded),
        contention_(contention) {}

  PassTimes Time() {
    const LayerWork work = WorkOfLayer(w_, layer_);
    // Where a recomputation ends as soon as all inputs are there, the last product and what follows it are
    // not among it.
    size_t last = work.items.size();
    if (w_.framework->stops_recompute_early && w_.recompute == RecomputeKind::kFull) {
      while (last > 0 && work.items[last - 1].kind != WorkKind::kMatmul) --last;
      if (last > 0) --last;
    }
    for (size_t i = 0; i < work.items.size(); ++i) AddOperator(work.items[i], i < last);
    if (work.tensor_parallel_bytes > 0) AddTensorExchanges(work.tensor_parallel_bytes);
    if (w_.degrees.cp > 1) AddContextExchanges();
    if (work.expert_bytes > 0) AddExpertExchanges(work.expert_bytes);
    if (w_.activations_on_host || offloaded_) AddOffload(SavedBytes(work, w_));
    return times_;
  }

 private:
  bool FullyRecomputed() const { return w_.recompute == RecomputeKind::kFull && recomputed_; }

  void AddOperator(const WorkItem& item, bool may_be_recomputed) {
    const ForwardBackward seconds = OperatorSeconds(item, w_);
    times_.forward += seconds.forward;
    if (item.kind == WorkKind::kAttention) {
      attention_forward_ += seconds.forward;
      attention_backward_ += seconds.backward;
    }
    if (item.kind == WorkKind::kMatmul) {
      // Both gradients are products of the same size.
      times_.input_backward += seconds.backward / 2;
      if (!w_.frozen) times_.weight_backward += seconds.backward / 2;
    } else {
      times_.input_backward += seconds.backward;
    }
    if (may_be_recomputed) times_.recompute += RecomputedShare(item) * seconds.forward;
  }

  double RecomputedShare(const WorkItem& item) const {
    if (w_.recompute == RecomputeKind::kNone) return 0;
    if (w_.recompute == RecomputeKind::kFull) return recomputed_ ? 1 : 0;
    // Selective: Megatron's is the scores alone.
    if (!w_.framework->selects_operators) {
      return w_.framework->attention == AttentionKernel::kScores && item.kind == WorkKind::kAttention ? 1 : 0;
    }
    return item.kind == WorkKind::kElementwise ? 1 : item.share_recomputed_by_selection;
  }

  double Seconds(Collective collective, double bytes, const cluster::GroupPlacement& group) const {
    return cluster::CollectiveSeconds(collective, bytes, group, *w_.node);
  }

  // Attention has an exchange before it and one after it, and so has an MLP; experts have their own.
  void AddTensorExchanges(double bytes) {
    const cluster::GroupPlacement group = PlacementOf(w_, w_.degrees.tp, 1);
    const double pairs = w_.model.HasExperts(layer_) && w_.degrees.etp == 1 ? 1 : 2;
    double forward = 0, backward = 0;
    if (w_.SequenceParallel()) {
      const double gather = Seconds(Collective::kAllGather, bytes, group);
      const double scatter = Seconds(Collective::kReduceScatter, bytes, group);
      forward = pairs * (gather + scatter);
      backward = forward;
      // Backward of a product whose input was gathered: that input is gathered again beside the product for
      // its gradient.
      const double again = pairs * gather;
      const double products = times_.input_backward - attention_backward_;
      backward += SecondsBeyondCompute(products, again, SpeedLeft(group, w_, contention_));
    } else {
      forward = pairs * Seconds(Collective::kAllReduce, bytes, group);
      backward = forward;
    }
    // Cut into as many pieces as there are ranks, all but the first run beside the products.
    if (w_.framework->overlap_tensor_parallel && w_.SequenceParallel() && !w_.model.experts.has_value()) {
      forward /= static_cast<double>(w_.degrees.tp);
      backward /= static_cast<double>(w_.degrees.tp);
    }
    times_.tensor_forward += forward;
    times_.tensor_backward += backward + (FullyRecomputed() ? forward : 0);
  }

  void AddContextExchanges() {
    const double ranks = static_cast<double>(w_.degrees.cp);
    const double tp = static_cast<double>(w_.degrees.tp);
    const double tokens = w_.TokensPerRank();
    const double dim = static_cast<double>(w_.model.head_dim);
    const double keys = std::max(1.0, static_cast<double>(w_.model.kv_heads) / tp) * dim;
    const double queries = static_cast<double>(w_.model.heads) / tp * dim;
    const double key_value_bytes = tokens * 2 * keys * kHalf;
    const cluster::GroupPlacement group = PlacementOf(w_, w_.degrees.cp, w_.degrees.tp);
    double forward = 0, backward = 0;
    switch (w_.context) {
      case ContextKind::kRing: {
        // Beside the attention over the part that is there; gradients of keys and values travel with them.
        const double hop =
            Seconds(Collective::kSendRecv, key_value_bytes, {2, group.ranks_per_node > 1 ? 2 : 1});
        const double left = SpeedLeft(group, w_, contention_);
        forward = (ranks - 1) * SecondsBeyondCompute(attention_forward_ / ranks, hop, left);
        backward = (ranks - 1) * SecondsBeyondCompute(attention_backward_ / ranks, 2 * hop, left);
        break;
      }
      case ContextKind::kAllGather:
        forward = Seconds(Collective::kAllGather, ranks * key_value_bytes, group);
        backward = forward + Seconds(Collective::kReduceScatter, ranks * key_value_bytes, group);
        break;
      case ContextKind::kAllToAll:
        forward = Seconds(Collective::kAllToAll, tokens * (queries + 2 * keys) * kHalf, group) +
                  Seconds(Collective::kAllToAll, tokens * queries * kHalf, group);
        backward = forward;
        break;
    }
    times_.context_forward += forward;
    times_.context_backward += backward + (FullyRecomputed() ? forward : 0);
  }

  // Dispatch and combine, in the forward and again in the backward. `bytes`: a copy for each expert.
  void AddExpertExchanges(double bytes) {
    const Degrees& d = w_.degrees;
    const cluster::GroupPlacement group = PlacementOf(w_, d.ep, d.etp);
    const double top_k = static_cast<double>(w_.model.experts->top_k);
    double one = 0;
    if (w_.expert_dispatch == ExpertDispatch::kNodeAware) {
      const double nodes = std::ceil(static_cast<double>(group.ranks) / group.ranks_per_node);
      const double ranks = group.ranks;
      one = cluster::TokenExchangeSeconds(bytes / top_k, Visited(nodes, top_k) * (nodes - 1) / nodes,
                                          Visited(ranks, top_k) * (ranks - 1) / ranks, group, *w_.node);
    } else {
      one = Seconds(Collective::kAllToAll, bytes, group);
    }
    if (d.etp > 1) {
      // The ranks of an expert see each other's tokens, and add up what they make of them.
      const cluster::GroupPlacement same_expert = PlacementOf(w_, d.etp, 1);
      const double gathered = bytes * static_cast<double>(d.etp);
      one += (Seconds(Collective::kAllGather, gathered, same_expert) +
              Seconds(Collective::kReduceScatter, gathered, same_expert)) /
             2;
    }
    double forward = 2 * one;
    double backward = forward + (FullyRecomputed() ? forward : 0);
    if (w_.overlap_experts) {
      const double left = SpeedLeft(group, w_, contention_);
      forward = SecondsBeyondCompute(times_.forward, forward, left);
      backward = SecondsBeyondCompute(times_.input_backward + times_.weight_backward + times_.recompute,
                                      backward, left);
    }
    times_.expert_forward += forward;
    times_.expert_backward += backward;
  }

  // What the backward needs goes to the host beside the forward, and comes back beside the backward.
  void AddOffload(double bytes) {
    const double copy = bytes / HostLinkBytesPerSecond(*w_.device);
    times_.offload_forward = SecondsBeyondCompute(times_.ForwardPass(), copy, 1);
    times_.offload_backward = SecondsBeyondCompute(times_.BackwardPass(), copy, 1);
  }

  // Of `places` equal groups of experts, how many hold at least one of `top_k` experts drawn evenly.
  static double Visited(double places, double top_k) {
    return places * (1 - std::pow(1 - 1 / places, top_k));
  }

  const Workload& w_;
  const int64_t layer_;
  const bool recomputed_;
  const bool offloaded_;
  const bool contention_;
  double attention_forward_ = 0;
  double attention_backward_ = 0;
  PassTimes times_;
};

}  // namespace

void PassTimes::Add(const PassTimes& o) {
  forward += o.forward;
  input_backward += o.input_backward;
  weight_backward += o.weight_backward;
  recompute += o.recompute;
  tensor_forward += o.tensor_forward;
  tensor_backward += o.tensor_backward;
  expert_forward += o.expert_forward;
  expert_backward += o.expert_backward;
  context_forward += o.context_forward;
  context_backward += o.context_backward;
  offload_forward += o.offload_forward;
  offload_backward += o.offload_backward;
}

PassTimes PassTimes::Times(double count) const {
  PassTimes times;
  times.forward = forward * count;
  times.input_backward = input_backward * count;
  times.weight_backward = weight_backward * count;
  times.recompute = recompute * count;
  times.tensor_forward = tensor_forward * count;
  times.tensor_backward = tensor_backward * count;
  times.expert_forward = expert_forward * count;
  times.expert_backward = expert_backward * count;
  times.context_forward = context_forward * count;
  times.context_backward = context_backward * count;
  times.offload_forward = offload_forward * count;
  times.offload_backward = offload_backward * count;
  return times;
}

PassTimes LayerPassTimes(const Workload& workload, int64_t layer, const LayerSwitches& switches,
                         bool contention) {
  return LayerTimer(workload, layer, switches, contention).Time();
}

PassTimes HeadPassTimes(const Workload& w) {
  const double tokens = w.TokensPerRank();
  const double hidden = static_cast<double>(w.model.hidden);
  const ForwardBackward seconds = HeadSeconds(w);
  PassTimes times;
  times.forward = seconds.forward;
  times.input_backward = seconds.backward / 2;
  if (!w.frozen) times.weight_backward = seconds.backward / 2;
  if (w.degrees.tp > 1) {
    // The input is gathered and its gradient scattered, or all-reduced; of a token its largest logit, the sum
    // and the target's are all-reduced, fp32 each.
    const cluster::GroupPlacement group = PlacementOf(w, w.degrees.tp, 1);
    const double bytes = tokens * hidden * kHalf;
    const auto seconds = [&](Collective op, double size) {
      return cluster::CollectiveSeconds(op, size, group, *w.node);
    };
    times.tensor_forward = 3 * seconds(Collective::kAllReduce, tokens * 4);
    if (w.SequenceParallel()) {
      times.tensor_forward += seconds(Collective::kAllGather, bytes);
      times.tensor_backward = seconds(Collective::kReduceScatter, bytes);
    } else {
      times.tensor_backward = seconds(Collective::kAllReduce, bytes);
    }
  }
  return times;
}

}  // namespace trainctl::pricing
