#include "frameworks/price_memory.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/match.h"
#include "frameworks/device_memory.h"
#include "frameworks/layer_work.h"

namespace trainctl::frameworks {
namespace {

constexpr double kHalf = 2;          // bytes of a half-precision element
constexpr double kUpperShare = 1.1;  // 95 % of the prices are off by less (docs/design/pricing.md)
// Of what other micro-batches keep, the holes between them: a simulation of that allocator's rules (best fit,
// splitting, its units) came to about a sixth; allocator_test.cc repeats it.
constexpr double kHoles = 1.0 / 6;

// What one layer keeps and needs, for one micro-batch.
struct LayerMemory {
  double kept = 0;    // as the workload recomputes
  double whole = 0;   // without recompute
  double widest = 0;  // its largest value
};

LayerMemory MemoryOfLayer(const Workload& w, int64_t layer) {
  const LayerWork work = WorkOfLayer(w, layer);
  LayerMemory memory;
  memory.kept = SavedBytes(work, w);
  for (const WorkItem& item : work.items) {
    memory.whole += item.saved_bytes;
    memory.widest = std::max(memory.widest, item.saved_bytes);
  }
  return memory;
}

class RankPricer {
 public:
  explicit RankPricer(const Workload& workload) : w_(workload), f_(*workload.framework) {
    const int64_t dense = NumDenseLayers(w_.model);
    if (dense > 0) dense_ = MemoryOfLayer(w_, 0);
    if (dense < NumLayers(w_.model)) experts_ = MemoryOfLayer(w_, NumLayers(w_.model) - 1);
    outside_ = OutsideBytes(w_);
  }

  MemoryPrice Price(int64_t rank) {
    MemoryPrice price;
    price.stage = static_cast<int>(rank);
    layers_ = LayerKindsOfRank(w_, rank);
    parameters_ = ParametersOfRank(w_, rank);
    shard_ = ShardedElements(parameters_, w_);
    AddStates(price);
    const double states = Tensors(price);
    AddActivations(price, rank);
    const double kept = Of(price, MemoryPart::kActivations);
    // Gradients that are not buffers come to be as activations go: of a single micro-batch none is there yet
    // when most activations are.
    const double all_gradients = GradientBytes();
    const bool from_start = f_.gradients_stay || w_.num_micro_batches() > 1;
    const double gradients = from_start ? all_gradients : 0;
    price.moments = {
        {{.gradients = gradients, .activations = kept, .work = WorkBytes()},
         {.gradients = gradients,
          .activations = kept,
          .work = layers_.last ? HeadBytes() : 0,
          .logits = layers_.last ? LogitBytes() : 0},
         {.gradients = all_gradients,
          .activations = w_.num_micro_batches() > 1 ? kept * (1 - 1 / MicroBatchesInFlight(w_, rank)) : 0,
          .work = std::max(WorkBytes(), TableGradientBytes())},
         {.gradients = all_gradients, .work = StepBytes()}}};
    const auto peak = std::max_element(price.moments.begin(), price.moments.end(),
                                       [](const auto& a, const auto& b) { return a.sum() < b.sum(); });
    price.moment = static_cast<MemoryMoment>(peak - price.moments.begin());
    Of(price, MemoryPart::kGradients) = peak->gradients;
    Of(price, MemoryPart::kActivations) = peak->activations;
    Of(price, MemoryPart::kWork) = peak->work;
    Of(price, MemoryPart::kLogits) = peak->logits;
    Of(price, MemoryPart::kOutside) = outside_;
    price.allocated_bytes = Tensors(price);
    double first_passes = 0;
    for (const MemoryMoment when : {MemoryMoment::kBackward, MemoryMoment::kLoss, MemoryMoment::kEnd})
      first_passes = std::max(first_passes, price.At(when).sum());
    price.first_step_bytes =
        states + std::max(first_passes - MomentBytes(), price.At(MemoryMoment::kStep).sum());

    const MemoryPrice::Moment& end = price.At(MemoryMoment::kEnd);
    const MemoryPrice::Moment& step = price.At(MemoryMoment::kStep);
    // The second gradient of the embedding has blocks of its own.
    const double passes = std::max({price.At(MemoryMoment::kBackward).sum(),
                                    price.At(MemoryMoment::kLoss).sum(), end.sum() - end.work + WorkBytes()});
    const double at_passes = passes + OtherPoolBytes() + HoleBytes(kept, rank);
    // What the passes freed is cut up, so that a flat buffer of the step finds no room in it; small blocks
    // do.
    const double together =
        f_.flat_step_bytes > 0 ? at_passes + FlatStepBytes() : std::max(at_passes, step.sum());
    price.reserved_bytes = std::max(price.allocated_bytes, states + std::max(together, step.sum()));
    // Where both do not fit the allocator gives back, before it fails, what nobody uses.
    price.needed_bytes = std::max(price.allocated_bytes, states + std::max(at_passes, step.sum())) + outside_;
    price.device_bytes = price.reserved_bytes + outside_;
    price.upper_bytes = price.device_bytes * kUpperShare;
    AddCheckpoint(price);
    return price;
  }

 private:
  static double& Of(MemoryPrice& price, MemoryPart part) { return price.parts[static_cast<size_t>(part)]; }
  static double Tensors(const MemoryPrice& price) {
    return std::accumulate(price.parts.begin(), price.parts.end(), 0.0) -
           price.parts[static_cast<size_t>(MemoryPart::kOutside)];
  }

  void AddStates(MemoryPrice& price) {
    const int zero = w_.zero_stage;
    const double whole = parameters_.all();
    if (w_.frozen) {
      Of(price, MemoryPart::kParameters) = zero == 3 ? shard_ * f_.weight_bytes : WeightBytes();
      return;
    }
    if (zero == 3 && f_.half_shards) {
      Of(price, MemoryPart::kParameters) = shard_ * f_.weight_bytes;
      Of(price, MemoryPart::kOptimizer) = shard_ * w_.OptimizerBytes();
    } else if (zero == 3) {
      // Most fully sharded trainers keep the fp32 shard as the parameter, and gather what a block needs.
      const double master = std::min(4.0, w_.OptimizerBytes());
      Of(price, MemoryPart::kParameters) = shard_ * master;
      Of(price, MemoryPart::kOptimizer) = shard_ * (w_.OptimizerBytes() - master);
    } else {
      Of(price, MemoryPart::kParameters) = WeightBytes();
      Of(price, MemoryPart::kOptimizer) = (zero >= 1 ? shard_ : whole) * w_.OptimizerBytes();
    }
    if (w_.optimizer_on_host) {
      // Its gradients are copied out as they come; the host has them in fp32.
      price.host_bytes += Of(price, MemoryPart::kOptimizer) + (zero >= 1 ? shard_ : whole) * 4;
      Of(price, MemoryPart::kOptimizer) = 0;
    }
  }

  // Of all parameters, when the backward has ended; of one tensor where each is applied at once.
  double GradientBytes() const {
    if (w_.frozen) return 0;
    const double table =
        PaddedVocab(w_) * static_cast<double>(w_.model.hidden) / static_cast<double>(w_.mesh.tp);
    const double largest = std::max(parameters_.largest_layer, layers_.first || layers_.last ? table : 0);
    const double elements =
        w_.optimizer_in_backward ? largest : (w_.ScattersEachMicroBatch() ? shard_ : parameters_.all());
    return elements * w_.GradientBytes();
  }

  double WeightBytes() const {
    if (!w_.weights_in_fp8) return parameters_.all() * f_.weight_bytes;
    const double copies = w_.transposed_weights ? 2 : 1;
    return copies * (parameters_.layers + parameters_.experts) + parameters_.tables * f_.weight_bytes;
  }

  // Of the optimizer's states on the device, both moments.
  double MomentBytes() const {
    if (w_.frozen || w_.optimizer_on_host || w_.optimizer_in_backward) return 0;
    const double each = std::min(w_.half_moments ? 4.0 : 8.0, w_.OptimizerBytes());
    return (w_.zero_stage >= 1 ? shard_ : parameters_.all()) * each;
  }

  // Before they are brought to FP8, all master weights of a rank are brought to bf16, one after the other,
  // and kept until the last one is done (NVIDIA/TransformerEngine@71bbefbf
  // transformer_engine/pytorch/tensor/utils.py, cast_master_weights_to_fp8).
  double CastBytes() const {
    if (!w_.weights_in_fp8 || w_.zero_stage == 0 || w_.zero_stage == 3) return 0;
    const double tables = parameters_.tables / static_cast<double>(w_.mesh.dp_shard * w_.mesh.cp);
    return std::max(0.0, shard_ - tables) * kHalf;
  }

  void AddActivations(MemoryPrice& price, int64_t rank) {
    const double in_flight = MicroBatchesInFlight(w_, rank);
    // Copies of the model share the micro-batches.
    const double share = w_.mesh.pp > 1 ? 1.0 / schedule::OrderOf(w_.Pipeline()).num_copies() : 1;
    const double count = static_cast<double>(layers_.count());
    double kept = static_cast<double>(layers_.dense) * dense_.kept +
                  static_cast<double>(layers_.experts) * experts_.kept;
    if (w_.recompute == RecomputeKind::kFull && w_.recomputed_layers.has_value() && count > 0) {
      const double again = std::min(count, static_cast<double>(*w_.recomputed_layers)) / count;
      const double whole = static_cast<double>(layers_.dense) * dense_.whole +
                           static_cast<double>(layers_.experts) * experts_.whole;
      kept = again * kept + (1 - again) * whole;
    }
    double embedding = 0;
    if (layers_.first) {
      const double elements = w_.TokensPerRank() * static_cast<double>(w_.model.hidden) /
                              (w_.SequenceParallel() ? static_cast<double>(w_.mesh.tp) : 1);
      if (f_.embedding_norm) embedding += elements * kHalf;
      if (w_.model.dropout) embedding += elements;
    }
    const double all = (kept * share + embedding) * in_flight;
    const double away = w_.activations_on_host
                            ? 1
                            : std::min(1.0, static_cast<double>(w_.offloaded_layers) / std::max(1.0, count));
    price.host_bytes += away * all;
    Of(price, MemoryPart::kActivations) = (1 - away) * all;
  }

  // A recomputed layer lives whole while its backward runs; any layer has the gradient of its widest value.
  double LayerBytes() const {
    double bytes = 0;
    for (const auto& [layer, count] :
         {std::pair(&dense_, layers_.dense), std::pair(&experts_, layers_.experts)}) {
      if (count == 0) continue;
      const double again = w_.recompute == RecomputeKind::kNone ? 0 : layer->whole - layer->kept;
      bytes = std::max(bytes, again + layer->widest);
    }
    return bytes;
  }

  // Of the block under way in the backward.
  double WorkBytes() const {
    double work = LayerBytes();
    // The gradient of one block before it is scattered; and of gathered ones the block under way and the
    // next.
    if (w_.zero_stage == 3 && w_.mesh.dp_shard > 1) {
      work += parameters_.largest_layer * (2 * kHalf + 4);
    } else if (w_.ScattersEachMicroBatch() && w_.mesh.data_degree() > 1 && w_.mesh.dp_shard > 1 &&
               !w_.frozen) {
      work += parameters_.largest_layer * 4;
    }
    work += f_.bucket_elements * kHalf;
    if (f_.weight_gradient_buffer) work += parameters_.largest_layer * kHalf;
    return work + ContextBytes();
  }

  // What context parallelism exchanges in the layer under way.
  double ContextBytes() const {
    if (w_.mesh.cp == 1) return 0;
    const double tp = static_cast<double>(w_.mesh.tp);
    const model::Attention& a = AttentionOf(w_.model);
    const double dim = static_cast<double>(a.head_dim);
    const double keys = std::max(1.0, static_cast<double>(a.kv_heads) / tp) * dim;
    const double queries = static_cast<double>(a.heads) / tp * dim;
    const double own = w_.TokensPerRank() * 2 * keys * kHalf;
    switch (w_.context) {
      case ContextKind::kRing:
        // The block that comes beside the one in use, and their gradients that go round in fp32 halves.
        return 2 * own;
      case ContextKind::kAllGather:
        // Keys and values of all, and their gradients before they are scattered.
        return 2 * own * static_cast<double>(w_.mesh.cp);
      case ContextKind::kAllToAll:
        // Queries, keys, values and the output once more, in the other layout.
        return w_.TokensPerRank() * (2 * queries + 2 * keys) * kHalf;
    }
    return 0;
  }

  double LogitBytes() const {
    const double logits = w_.TokensPerRank() * PaddedVocab(w_) / static_cast<double>(w_.mesh.tp);
    if (w_.loss_chunks == 1) return logits * w_.LogitBytes();
    const double kept = std::min(f_.kept_logit_bytes, w_.LogitBytes());
    return logits * (kept + (w_.LogitBytes() - kept) / static_cast<double>(w_.loss_chunks));
  }

  // Of the output matrix while the loss is formed: gathered, its gradient, and that in the precision of the
  // reduction. Without shards the gradient alone, which is counted where gradients stay.
  double HeadBytes() const {
    const double table =
        PaddedVocab(w_) * static_cast<double>(w_.model.hidden) / static_cast<double>(w_.mesh.tp);
    const bool gathered = w_.zero_stage == 3 && w_.mesh.dp_shard > 1;
    if (w_.frozen) return gathered ? table * kHalf : 0;
    if (gathered) return table * (2 * kHalf + w_.GradientBytes());
    return f_.gradients_stay || w_.num_micro_batches() > 1 ? 0 : table * w_.GradientBytes();
  }

  double StepBytes() const {
    if (w_.frozen || w_.optimizer_in_backward || w_.optimizer_on_host) return 0;
    // Before the step all gradients are there once more, to be reduced; the step needs nothing.
    if (HasOwnGradients()) return parameters_.all() * f_.bf16_reduced_copy_bytes;
    const double all = w_.zero_stage >= 1 ? shard_ : parameters_.all();
    if (!w_.half_moments) return all * f_.step_bytes + CastBytes();
    // Both moments as fp32, of all tensors of a group of parameters before the kernel runs; experts are a
    // group of their own (NVIDIA/TransformerEngine transformer_engine/pytorch/optimizers/fused_adam.py, step
    // and get_unscaled_state; NVIDIA/Megatron-LM megatron/core/optimizer/__init__.py, _get_param_groups).
    // Beside bf16 weights that optimizer reads the gradients as they are (distrib_optimizer.py,
    // decoupled_grad).
    const double dense = w_.zero_stage >= 1 ? ShardedDenseElements(parameters_, w_) : parameters_.dense();
    const double group = std::max(dense, all - dense);
    const double gradients = w_.precision == Precision::kBf16 ? 0 : all * f_.step_bytes;
    return gradients + std::max(group * 8, CastBytes());
  }
  // The bf16 optimizer has its gradients in fp32 already.
  bool HasOwnGradients() const {
    return w_.precision == Precision::kBf16 && w_.gradient_bytes == 0 && f_.bf16_gradient_bytes > 0;
  }
  // Where parameters are sharded the step works on their shards one by one, not on flat copies. Before them a
  // bucket of gradients is reduced as one flat copy, whose block the first of them takes if it is large
  // enough.
  double FlatStepBytes() const {
    if (HasOwnGradients() || StepBytes() == 0 || w_.zero_stage == 3) return StepBytes();
    const double flat = StepBytes() / f_.step_bytes * f_.flat_step_bytes;
    const double bucket = std::min(f_.reduced_copy_elements, parameters_.all()) * w_.GradientBytes();
    const double first = StepBytes() / f_.step_bytes * kHalf;
    return flat + (first <= bucket ? bucket - first : bucket);
  }

  // The largest weight of a layer that is not routed: gradients are formed weight by weight, and the largest
  // block serves all of them.
  double LargestWeight() const {
    const model::Attention& a = AttentionOf(w_.model);
    const model::Mlp& mlp = MlpOf(w_.model);
    const double ffn = static_cast<double>(mlp.ffn) * (mlp.gated ? 2 : 1);
    const double attention = static_cast<double>((a.heads + 2 * a.kv_heads) * a.head_dim);
    return std::max(ffn, attention) * static_cast<double>(w_.model.hidden) / static_cast<double>(w_.mesh.tp);
  }

  // A second gradient of the embedding beside the one that it is added to.
  double TableGradientBytes() const {
    if (!f_.gradient_twice || w_.num_micro_batches() == 1 || !(layers_.first || layers_.last)) return 0;
    const double table =
        PaddedVocab(w_) * static_cast<double>(w_.model.hidden) / static_cast<double>(w_.mesh.tp);
    return table * (HasOwnGradients() ? 4 : kHalf);
  }

  // What waits for its backward cuts up the blocks in which the layer under way worked before, so that it
  // needs others: at most its working set again, and a part of what the other micro-batches keep.
  double HoleBytes(double kept, int64_t rank) const {
    const double others = kept * (1 - 1 / MicroBatchesInFlight(w_, rank));
    // Of one micro-batch the layers that are gathered and dropped leave their blocks among what is kept: each
    // pass needs a block's working set once more, unless segments grow.
    const bool gathers = w_.zero_stage == 3 && w_.mesh.dp_shard > 1;
    const bool grows = f_.expandable_segments && w_.device->silicon != cluster::Silicon::kCdna;
    if (gathers && !grows) return WorkBytes();
    return std::min(LayerBytes(), others * kHoles);
  }

  // Blocks that other streams allocated serve them alone: what is gathered before it is copied out, and
  // buffers that are not there at the peak but larger than anything freed.
  double OtherPoolBytes() const {
    double bytes = TableGradientBytes();
    // Of a layer, too, gradients are formed beside those that they are added to; where each is copied to fp32
    // after the backward the embedding's block serves all.
    if (f_.gradient_twice && w_.num_micro_batches() > 1 && (!HasOwnGradients() || bytes == 0))
      bytes += LargestWeight() * (HasOwnGradients() ? 4 : kHalf);
    if (f_.gathers_in_own_pool && w_.zero_stage == 3 && w_.mesh.dp_shard > 1) {
      const double table =
          layers_.first || layers_.last
              ? PaddedVocab(w_) * static_cast<double>(w_.model.hidden) / static_cast<double>(w_.mesh.tp)
              : 0;
      bytes += std::max(parameters_.largest_layer, table) * kHalf;
    }
    return bytes;
  }

  void AddCheckpoint(MemoryPrice& price) const {
    const bool sharded = w_.zero_stage >= 1;
    const double weights = w_.zero_stage == 3 ? 0 : parameters_.all() * kHalf;
    const double states = (sharded ? shard_ : parameters_.all()) * (w_.frozen ? 0 : w_.OptimizerBytes());
    price.checkpoint_bytes = weights + states;
    const double gathered = std::max(parameters_.largest_layer, parameters_.tables) * kHalf;
    price.load_bytes =
        Of(price, MemoryPart::kParameters) + Of(price, MemoryPart::kOptimizer) + gathered + outside_;
  }

  const Workload& w_;
  const FrameworkProfile& f_;
  LayerMemory dense_, experts_;
  RankLayers layers_;
  RankParameters parameters_;
  double shard_ = 0;
  double outside_ = 0;
};

}  // namespace

double MemoryPrice::Of(MemoryMetric metric) const {
  switch (metric) {
    case MemoryMetric::kAllocated:
      return allocated_bytes;
    case MemoryMetric::kFirstStep:
      return first_step_bytes;
    case MemoryMetric::kReserved:
      return reserved_bytes;
    case MemoryMetric::kDevice:
      return device_bytes;
  }
  return device_bytes;
}

double MemoryPrice::UpperOf(MemoryMetric metric) const { return Of(metric) * kUpperShare; }

MemoryPrice PriceMemory(const Workload& workload) {
  RankPricer pricer(workload);
  MemoryPrice worst;
  double first_step = 0;
  for (int64_t rank = 0; rank < workload.mesh.pp; ++rank) {
    const MemoryPrice price = pricer.Price(rank);
    first_step = std::max(first_step, price.first_step_bytes);
    if (rank == 0 || price.reserved_bytes > worst.reserved_bytes) worst = price;
  }
  worst.first_step_bytes = first_step;
  TuneMemory(workload.tuning, worst);
  return worst;
}

MemoryPrice PriceMemoryOfRank(const Workload& workload, int64_t rank) {
  return RankPricer(workload).Price(rank);
}

}  // namespace trainctl::frameworks
