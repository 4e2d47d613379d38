#include "frameworks/data_parallel_time.h"

#include <algorithm>
#include <cmath>

#include "cluster/collectives.h"
#include "frameworks/operator_time.h"
#include "frameworks/overlap.h"
#include "frameworks/pipeline_rank.h"
#include "simulate/device_kernels.h"

namespace trainctl::frameworks {
namespace {

using cluster::Collective;

// NVIDIA/Megatron-LM megatron/core/distributed/distributed_data_parallel.py: bucket_size =
// max(40000000, 1000000 * dp_size) elements.
constexpr double kBucketElements = 40e6;
constexpr double kBucketElementsPerRank = 1e6;

class Exchanger {
 public:
  Exchanger(const Workload& workload, const PassTimes& micro_batch, bool contention)
      : w_(workload), mesh_(workload.mesh), micro_batch_(micro_batch), contention_(contention) {}

  DataParallelTimes Time() {
    if (w_.frozen) return times_;  // adapters are too small to count
    if (mesh_.data_degree() * mesh_.cp > 1) {
      const RankParameters own = ParametersOfRank(w_, 0);
      const bool by_block = w_.zero_stage == 3 || (w_.zero_stage == 2 && w_.framework->gathers_by_block);
      by_block ? ExchangeBlocks(own) : ExchangeBuckets(own);
    }
    const double tables = SharedTableSeconds();
    times_.reduce_seconds += tables;
    times_.exposed_reduce_seconds += tables;
    return times_;
  }

 private:
  // Ranks that share one copy of what is sharded, and ranks that hold the same part.
  struct Groups {
    cluster::GroupPlacement shard;
    cluster::GroupPlacement replicas;
  };

  Groups GroupsOf(int64_t ranks, int64_t shard_ranks, int64_t stride) const {
    shard_ranks = std::clamp<int64_t>(shard_ranks, 1, ranks);
    return {PlacementOf(w_, shard_ranks, stride),
            PlacementOf(w_, std::max<int64_t>(1, ranks / shard_ranks), stride * shard_ranks)};
  }
  Groups DenseGroups() const {
    return GroupsOf(mesh_.data_degree() * mesh_.cp, mesh_.dp_shard * mesh_.cp, mesh_.tp);
  }
  Groups ExpertGroups() const {
    const int64_t share = mesh_.ep * mesh_.etp;
    return GroupsOf(std::max<int64_t>(1, mesh_.ranks_per_stage() / share),
                    std::max<int64_t>(1, mesh_.dp_shard * mesh_.cp * mesh_.tp / share), share);
  }

  double Run(Collective collective, double bytes, const cluster::GroupPlacement& group) const {
    return bytes > 0 ? cluster::CollectiveSeconds(collective, bytes, group, *w_.node) : 0;
  }
  double GradientBytes() const { return w_.ExchangedGradientBytes(); }

  // Of a parameter as it is gathered.
  double WeightBytes() const { return w_.weights_in_fp8 || w_.gathers_fp8 ? 1 : kHalf; }

  // Gradients of `elements`: scattered to their shards and these summed over the replicas, or all-reduced.
  double Reduce(double elements, const Groups& groups) const {
    const double bytes = elements * GradientBytes();
    if (w_.zero_stage == 0 || w_.framework->owners_broadcast) {
      return Run(Collective::kAllReduce, bytes, Whole(groups));
    }
    return Run(Collective::kReduceScatter, bytes, groups.shard) +
           Run(Collective::kAllReduce, bytes / groups.shard.ranks, groups.replicas);
  }

  static cluster::GroupPlacement Whole(const Groups& groups) {
    return {groups.shard.ranks * groups.replicas.ranks,
            groups.replicas.ranks > 1 ? groups.shard.ranks_per_node * groups.replicas.ranks_per_node
                                      : groups.shard.ranks_per_node};
  }

  double Gather(double elements, const Groups& groups) const {
    if (w_.zero_stage == 0) return 0;
    if (!w_.framework->owners_broadcast)
      return Run(Collective::kAllGather, elements * WeightBytes(), groups.shard);
    // Each owner sends its tensors to all others; there are no more owners than tensors.
    const double layers = static_cast<double>(NumLayers(w_.model)) / static_cast<double>(mesh_.pp);
    const double tensors = layers * (MlpOf(w_.model).gated ? 7 : 6) + 3;
    const double owners = std::min<double>(groups.shard.ranks, std::ceil(tensors));
    return owners * Run(Collective::kBroadcast, elements * WeightBytes() / owners, groups.shard);
  }

  // ZeRO-1 and plain replicas: gradients in buckets beside the last backward, the last bucket after it;
  // ZeRO-2 so beside every backward. Parameters beside the next forward, the first bucket before it.
  void ExchangeBuckets(const RankParameters& own) {
    const Groups dense = DenseGroups();
    const Groups experts = ExpertGroups();
    const double reduce = Reduce(own.dense(), dense) + Reduce(own.experts, experts);
    const double gather = Gather(own.dense(), dense) + Gather(own.experts, experts);
    times_.reduce_seconds = times_.exposed_reduce_seconds = reduce;
    times_.gather_seconds = times_.exposed_gather_seconds = gather;
    const double others = Scatterings() - 1;  // but the last micro-batch's
    times_.spread_seconds =
        Scatterings() * own.all() * w_.framework->bucket_copy_bytes / simulate::BytesPerSecond(*w_.device);
    if (!w_.framework->overlap_data_parallel) {
      times_.spread_seconds += others * reduce;
      return;
    }
    const double bucket =
        w_.framework->overlap_bucket_elements > 0
            ? w_.framework->overlap_bucket_elements
            : std::max(kBucketElements, kBucketElementsPerRank * static_cast<double>(mesh_.data_degree()));
    const double share = std::min(1.0, bucket / std::max(1.0, own.all()));
    const double left = SpeedLeftByRing(Whole(dense), w_, contention_);
    times_.exposed_reduce_seconds = Beside(micro_batch_.BackwardPass(), reduce, share, left, Scatterings());
    times_.spread_seconds += others * times_.exposed_reduce_seconds;
    if (w_.framework->owners_broadcast) return;
    times_.exposed_gather_seconds = Beside(micro_batch_.ForwardPass(), gather, share, left, 1);
  }

  // What of an exchange is exposed when all but a `share` of it runs beside `compute`, and that so many
  // times.
  double Beside(double compute, double exchange, double share, double left, double times) {
    const double beside = (1 - share) * exchange;
    const double exposed = std::max(0.0, beside - compute);
    times_.spread_seconds += times * (SecondsBeyondCompute(compute, beside, left) - exposed);
    return share * exchange + exposed;
  }

  // How often in a step gradients are reduced.
  double Scatterings() const {
    return w_.ScattersEachMicroBatch() ? static_cast<double>(w_.num_micro_batches()) : 1;
  }

  // Each block is gathered before its forward and again before its backward (kept, where parameters are
  // not sharded), its gradient scattered after it, all beside the block that is under way. Gradients that are
  // added up whole are scattered when all passes are over; with them parameters that are not sharded stay.
  void ExchangeBlocks(const RankParameters& own) {
    const double layers =
        std::max(1.0, static_cast<double>(NumLayers(w_.model)) / static_cast<double>(mesh_.pp));
    const Groups dense = DenseGroups();
    const Groups experts = ExpertGroups();
    const auto gather_of = [&](double layer, double expert) {
      return Run(Collective::kAllGather, layer * WeightBytes(), dense.shard) +
             Run(Collective::kAllGather, expert * WeightBytes(), experts.shard);
    };
    const double gather = gather_of(own.layers / layers, own.experts / layers);
    const double scatter = Reduce(own.layers / layers, dense) + Reduce(own.experts / layers, experts);
    const double left = SpeedLeftByRing(Whole(dense), w_, contention_);
    const double again = w_.zero_stage == 3 ? gather : 0;
    const bool each = w_.ScattersEachMicroBatch();
    const double beside = each ? scatter : 0;
    double seconds =
        layers * (SecondsBeyondCompute(micro_batch_.ForwardPass() / layers, gather, left) +
                  SecondsBeyondCompute(micro_batch_.BackwardPass() / layers, again + beside, left));
    // The first gather and the last scatter, and the embedding's, have nothing to hide behind.
    const double tables = w_.model.tie_embeddings ? own.tables : own.tables / 2;
    seconds += gather + Run(Collective::kAllGather, tables * kHalf, dense.shard);
    double reduce = (each ? scatter : layers * scatter) + Reduce(tables, dense);
    // Gathered blocks are copied into their parameters, gradients into the buffer that is scattered. Flat
    // ones are joined first, then cast, and divided in place by a part of the number of ranks.
    const double wire = GradientBytes();
    const double gradient_copies = w_.framework->flat_gradients
                                       ? 2 * kHalf + (wire > kHalf ? kHalf + wire : 0) + 2 * wire
                                       : kHalf + wire;
    // A rank's part of a block is cast from fp32 and copied to where it is gathered (PyTorch
    // torch/distributed/ fsdp/_fully_shard/_fsdp_param.py, all_gather_inputs; _fsdp_collectives.py,
    // all_gather_copy_in).
    const double parts = own.dense() / static_cast<double>(dense.shard.ranks) +
                         own.experts / static_cast<double>(experts.shard.ranks);
    const double copies = own.all() * 2 * WeightBytes() + parts * (4 + 3 * WeightBytes());
    if (w_.framework->copies_gathered_blocks)
      seconds += copies * (again > 0 ? 2 : 1) / simulate::BytesPerSecond(*w_.device);
    reduce += own.all() * gradient_copies / simulate::BytesPerSecond(*w_.device);
    const bool gathers_each = each || w_.zero_stage == 3;
    times_.spread_seconds = seconds * (gathers_each ? static_cast<double>(w_.num_micro_batches()) : 1);
    if (each) {
      times_.spread_seconds += reduce * Scatterings();
    } else {
      times_.reduce_seconds = times_.exposed_reduce_seconds = reduce;
    }
  }

  // Tied tables live on the first and the last pipeline rank, which add up their gradients.
  double SharedTableSeconds() const {
    if (mesh_.pp == 1 || !w_.model.tie_embeddings) return 0;
    const double elements = static_cast<double>(w_.model.vocab) * static_cast<double>(w_.model.hidden) /
                            static_cast<double>(mesh_.tp);
    const bool same_node = mesh_.world_size() <= w_.node->gpus;
    return Run(Collective::kAllReduce, elements * GradientBytes(), {2, same_node ? 2 : 1});
  }

  const Workload& w_;
  const layout::Mesh& mesh_;
  const PassTimes& micro_batch_;
  const bool contention_;
  DataParallelTimes times_;
};

}  // namespace

DataParallelTimes TimeDataParallel(const Workload& workload, const PassTimes& micro_batch, bool contention) {
  return Exchanger(workload, micro_batch, contention).Time();
}

}  // namespace trainctl::frameworks
