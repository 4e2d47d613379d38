#include "frameworks/layer_time.h"

#include <algorithm>
#include <cmath>

#include "cluster/collectives.h"
#include "frameworks/operator_time.h"
#include "frameworks/overlap.h"
#include "frameworks/update_time.h"
#include "simulate/device_kernels.h"

namespace trainctl::frameworks {
namespace {

using cluster::Collective;

// kHostOperatorSeconds where the host is a Grace, and one linear layer of Transformer Engine over that
// (ibid.: 37.08 and 99.66 us on a GB200).
constexpr double kGraceOperator = 37.08e-6;
constexpr double kTransformerEngine = 99.66 / 37.08;
// Experts as grouped products of Transformer Engine on a GB200: 1.2 ms forward, 2.1 ms backward for 64 of
// them (NVIDIA/TransformerEngine#2897), in operators per expert. Their ratio serves all backwards.
constexpr double kOperatorsPerExpert = 1.2e-3 / 64 / kGraceOperator;
constexpr double kBackwardOfForward = 2.1 / 1.2;

// Of the exchanges of tokens that another micro-batch's passes could hide, what they do hide: most of them
// wait for routing, for other ranks and for the launch of what is to run beside them. A profile of
// Qwen3-30B-A3B on 16 H100 (NVIDIA-NeMo/Megatron-Bridge@067f987
// skills/nemo-mbridge-perf-moe-comm-overlap/SKILL.md): 36.55 % of the communication time beside products and
// attention with the overlap, 0.11 % without.
constexpr double kHiddenExchange = 0.3655;

// What the device stands idle in a layer with experts while the host, which waited for the counts of their
// tokens, launches what comes next. The same profile without overlap: the device is busy for 22.821 s of a
// step of 24.7138 s, 64 micro-batches of 48 layers; with the overlap, 21.221 s of 20.992 to 21.073 s, it is
// always.
constexpr double kIdleAfterCounts = (24.7138 - 22.821) / (64 * 48);

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
    if (w_.StopsRecomputeEarly() && w_.recompute == RecomputeKind::kFull) {
      while (last > 0 && work.items[last - 1].kind != WorkKind::kMatmul) --last;
      if (last > 0) --last;
    }
    for (size_t i = 0; i < work.items.size(); ++i) AddOperator(work.items[i], i < last);
    if (HasExperts(w_.model, layer_)) AddSmallKernels();
    if (work.tensor_parallel_bytes > 0) AddTensorExchanges(work.tensor_parallel_bytes);
    if (w_.mesh.cp > 1) AddContextExchanges();
    if (work.expert_bytes > 0) AddExpertExchanges(work.expert_bytes);
    WaitForHost(work);
    WaitForCounts();
    times_.weight_backward += GradientAdditionSeconds(w_, weights_);
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
      products_forward_ += seconds.forward;
      products_backward_ += w_.frozen ? seconds.backward / 2 : seconds.backward;
      if (OverlapsTensorExchanges()) AddPieces(item, seconds.forward);
      // Both gradients are products of the same size.
      times_.input_backward += seconds.backward / 2;
      if (!w_.frozen) times_.weight_backward += seconds.backward / 2;
      weights_ += item.batch * item.inner * item.columns;
    } else {
      times_.input_backward += seconds.backward;
    }
    if (may_be_recomputed) times_.recompute += RecomputedShare(item) * seconds.forward;
  }

  // Kernels that do next to nothing still follow each other; of three the forward has one.
  void AddSmallKernels() {
    const double seconds = w_.framework->expert_layer_kernels * simulate::PassSeconds(*w_.device, 1);
    times_.forward += seconds / 3;
    times_.input_backward += seconds * 2 / 3;
  }

  double RecomputedShare(const WorkItem& item) const {
    if (w_.recompute == RecomputeKind::kNone) return 0;
    if (w_.recompute == RecomputeKind::kFull) return recomputed_ ? 1 : 0;
    // Selective: Megatron's is by modules, the scores alone where it says nothing else.
    if (!w_.framework->selects_operators) {
      const uint32_t modules =
          w_.framework->selects_modules ? w_.recompute_modules : uint32_t{kCoreAttention};
      const bool scores =
          w_.framework->attention == AttentionKernel::kScores && item.kind == WorkKind::kAttention;
      return (item.again_by & modules) != 0 || (scores && (modules & kCoreAttention) != 0) ? 1 : 0;
    }
    if (item.kind == WorkKind::kAttention) return w_.recompute_attention ? 1 : 0;
    return item.kind == WorkKind::kElementwise ? 1 : item.share_recomputed_by_selection;
  }

  double Seconds(Collective collective, double bytes, const cluster::GroupPlacement& group) const {
    return cluster::CollectiveSeconds(collective, bytes, group, *w_.node);
  }

  bool OverlapsTensorExchanges() const {
    return w_.overlap_tensor_parallel.value_or(w_.framework->overlap_tensor_parallel) && w_.mesh.tp > 1 &&
           w_.SequenceParallel() && FindExperts(w_.model) == nullptr;
  }

  // A product whose input arrives, or whose result leaves, piece by piece runs as so many small ones, which
  // fill the device less well (user buffers' ring exchange, of all products in the forward and those behind
  // attention and MLP in the backward: NVIDIA-NeMo/Megatron-Bridge@067f987
  // src/megatron/bridge/training/comm_overlap.py, userbuffers_*).
  void AddPieces(const WorkItem& item, double whole) {
    const double tp = static_cast<double>(w_.mesh.tp);
    WorkItem piece = item;
    piece.rows /= tp;
    const double more = std::max(0.0, tp * OperatorSeconds(piece, w_).forward - whole);
    pieces_forward_ += more;
    const bool leaves = item.columns == static_cast<double>(w_.model.hidden);
    if (leaves) pieces_backward_ += more;
  }

  // Attention has an exchange before it and one after it, and so has an MLP; experts have their own.
  void AddTensorExchanges(double bytes) {
    const cluster::GroupPlacement group = PlacementOf(w_, w_.mesh.tp, 1);
    const double pairs = HasExperts(w_.model, layer_) && w_.mesh.etp == 1 ? 1 : 2;
    const double left = SpeedLeft(group, w_, contention_);
    double forward = 0, backward = 0;
    if (w_.SequenceParallel()) {
      const double gather = pairs * Seconds(Collective::kAllGather, bytes, group);
      forward = gather + pairs * Seconds(Collective::kReduceScatter, bytes, group);
      // In the backward of a product whose input was gathered that input is gathered again.
      if (OverlapsTensorExchanges()) {
        // Cut into as many pieces as there are ranks, all but the first run beside the products; what these
        // do not cover is exposed.
        const double first = 1 / static_cast<double>(w_.mesh.tp);
        const auto exposed = [&](double exchange, double compute, double pieces) {
          return first * exchange + pieces +
                 SecondsBeyondCompute(compute + pieces, (1 - first) * exchange, left);
        };
        backward = exposed(forward + gather, products_backward_, pieces_backward_);
        forward = exposed(forward, products_forward_, pieces_forward_);
      } else {
        backward = forward + SecondsBeyondCompute(products_backward_, gather, left);
      }
    } else {
      forward = pairs * (Seconds(Collective::kAllReduce, bytes, group) + LaunchSeconds(w_, 1));
      backward = forward;
    }
    times_.tensor_forward += forward;
    times_.tensor_backward += backward + (FullyRecomputed() ? forward : 0);
  }

  void AddContextExchanges() {
    const double ranks = static_cast<double>(w_.mesh.cp);
    const double tp = static_cast<double>(w_.mesh.tp);
    const double tokens = w_.TokensPerRank();
    const model::Attention& a = AttentionOf(w_.model);
    const double dim = static_cast<double>(a.head_dim);
    const double keys = std::max(1.0, static_cast<double>(a.kv_heads) / tp) * dim;
    const double queries = static_cast<double>(a.heads) / tp * dim;
    const double key_value_bytes = tokens * 2 * keys * kHalf;
    const cluster::GroupPlacement group = PlacementOf(w_, w_.mesh.cp, w_.mesh.tp);
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

  // Dispatch and combine, in the forward and again in the backward. `bytes`: a copy for each part of each
  // expert.
  void AddExpertExchanges(double bytes) {
    const cluster::GroupPlacement group = PlacementOf(w_, w_.mesh.ep, w_.mesh.etp);
    const double top_k = static_cast<double>(FindExperts(w_.model)->top_k);
    const double sent = bytes / static_cast<double>(w_.mesh.etp);
    double one = 0;
    if (w_.expert_dispatch == ExpertDispatch::kNodeAware) {
      const double nodes = std::ceil(static_cast<double>(group.ranks) / group.ranks_per_node);
      const double ranks = group.ranks;
      one = cluster::TokenExchangeSeconds(sent / top_k, Visited(nodes, top_k) * (nodes - 1) / nodes,
                                          Visited(ranks, top_k) * (ranks - 1) / ranks, group, *w_.node);
    } else {
      one = Seconds(Collective::kAllToAll, sent, group);
    }
    if (w_.mesh.etp > 1) {
      // The ranks of an expert see each other's tokens, and add up what they make of them.
      const cluster::GroupPlacement same_expert = PlacementOf(w_, w_.mesh.etp, 1);
      one += (Seconds(Collective::kAllGather, bytes, same_expert) +
              Seconds(Collective::kReduceScatter, bytes, same_expert)) /
             2;
    }
    double forward = 2 * one;
    const bool again =
        FullyRecomputed() || (w_.recompute == RecomputeKind::kSelective && w_.framework->selects_modules &&
                              (w_.recompute_modules & kWholeExperts) != 0);
    double backward = forward + (again ? forward : 0);
    if (w_.overlap_experts) {
      const double left = SpeedLeft(group, w_, contention_);
      const auto exposed = [&](double compute, double exchange) {
        return std::max(SecondsBeyondCompute(compute, exchange, left), (1 - kHiddenExchange) * exchange);
      };
      forward = exposed(times_.forward, forward);
      backward = exposed(times_.input_backward + times_.weight_backward + times_.recompute, backward);
    }
    times_.expert_forward += forward;
    times_.expert_backward += backward;
  }

  // A layer takes no less than the host needs to launch its operators one by one.
  void WaitForHost(const LayerWork& work) {
    if (!w_.launches_operators.value_or(w_.framework->launches_operators)) return;
    double operators = 0, again = 0;
    for (const WorkItem& item : work.items) {
      double count = 1;
      if (item.kind == WorkKind::kMatmul) {
        if (item.batch > 1) {
          count = item.batch * kOperatorsPerExpert / 2;  // the two products of an expert
        } else if (w_.framework->selects_modules) {
          count = kTransformerEngine;
        }
      }
      operators += count;
      again += RecomputedShare(item) * count;
    }
    const double host = w_.device->grace_host ? kGraceOperator : kHostOperatorSeconds;
    times_.forward += std::max(0.0, operators * host - times_.ForwardPass());
    times_.input_backward +=
        std::max(0.0, (kBackwardOfForward * operators + again) * host - times_.BackwardPass());
  }

  // The backward knows the counts already, what is done again does not forget them.
  void WaitForCounts() {
    if (!w_.framework->waits_for_counts || !HasExperts(w_.model, layer_) || w_.mesh.ep == 1) return;
    if (w_.overlap_experts || w_.drops_tokens || w_.fused_experts) return;
    if (!w_.launches_operators.value_or(w_.framework->launches_operators)) return;
    times_.forward += kIdleAfterCounts;
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
  double weights_ = 0;  // elements of this rank's matrices
  double products_forward_ = 0;
  double products_backward_ = 0;
  double attention_forward_ = 0;
  double attention_backward_ = 0;
  double pieces_forward_ = 0;  // what products lose that are cut into pieces
  double pieces_backward_ = 0;
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
  times.weight_backward += GradientAdditionSeconds(
      w, hidden * static_cast<double>(w.model.vocab) / static_cast<double>(w.mesh.tp));
  if (w.mesh.tp > 1) {
    // The input is gathered and its gradient scattered, or all-reduced; of a token its largest logit, the sum
    // and the target's are all-reduced, fp32 each.
    const cluster::GroupPlacement group = PlacementOf(w, w.mesh.tp, 1);
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

}  // namespace trainctl::frameworks
