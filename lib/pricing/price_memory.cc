#include "pricing/price_memory.h"

#include <algorithm>
#include <numeric>

#include "pricing/layer_work.h"

namespace trainctl::pricing {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// CUDA context with the kernels of the libraries, cuBLAS and cuDNN workspaces: PyTorch on A100 and
// H100 shows some 0.5 GiB for the context alone (pytorch/pytorch#20532, nvidia-smi after the first kernel).
constexpr double kContextBytes = 0.75 * kGiB;
// NCCL's buffers per communicator: channels x (send + receive) x 4 MiB protocols; 16 channels
// (NVIDIA/nccl src/include/comm.h, NCCL_BUFFSIZE 4 MiB).
constexpr double kCommunicatorBytes = 16 * 2 * 4.0 * 1024 * 1024;
// The caching allocator rounds blocks and cannot always reuse what it holds.
constexpr double kReservedShare = 1.05;
constexpr double kUpperShare = 1.05;

double PaddedVocab(const Workload& w) {
  const int64_t multiple = w.framework->vocab_multiple > 1 ? w.framework->vocab_multiple * w.degrees.tp : 1;
  const int64_t padded = (w.model.vocab + multiple - 1) / multiple * multiple;
  return static_cast<double>(padded);
}

double& Part(MemoryPrice& price, MemoryPart part) { return price.parts[static_cast<size_t>(part)]; }

double LogitBytes(const Workload& w) {
  const double tokens = w.TokensPerRank();
  return tokens * PaddedVocab(w) / static_cast<double>(w.degrees.tp) * w.framework->logit_bytes /
         static_cast<double>(w.loss_chunks);
}

MemoryPrice PriceRank(const Workload& w, int64_t rank) {
  const FrameworkProfile& f = *w.framework;
  const int zero = w.degrees.zero_stage;
  const RankParameters stage = ParametersOfRank(w, rank);
  const double shard = ShardedElements(stage, w);
  MemoryPrice price;
  price.stage = static_cast<int>(rank);

  // Fully sharded trainers keep the fp32 shard as the parameter, and gather what a block needs.
  const double whole = stage.all();
  if (zero == 3) {
    const double master = std::min(4.0, w.OptimizerBytes());
    Part(price, MemoryPart::kParameters) = shard * master;
    Part(price, MemoryPart::kOptimizer) = shard * (w.OptimizerBytes() - master);
  } else {
    Part(price, MemoryPart::kParameters) = whole * f.weight_bytes;
    Part(price, MemoryPart::kOptimizer) = (zero >= 1 ? shard : whole) * w.OptimizerBytes();
  }
  const double gradients = w.optimizer_in_backward ? stage.largest_layer : (zero >= 2 ? shard : whole);
  Part(price, MemoryPart::kGradients) = gradients * w.GradientBytes();

  double per_micro_batch = 0;
  double largest_work = 0;
  for (int64_t layer : LayersOfRank(w, rank)) {
    const LayerWork work = WorkOfLayer(w, layer);
    per_micro_batch += SavedBytes(work, w);
    double all = 0;
    for (const WorkItem& item : work.items) all += item.saved_bytes;
    // A recomputed layer lives whole while its backward runs; any layer has the gradient of its widest value.
    double widest = 0;
    for (const WorkItem& item : work.items) widest = std::max(widest, item.saved_bytes);
    const double again = w.recompute == RecomputeKind::kNone ? 0 : all - SavedBytes(work, w);
    largest_work = std::max(largest_work, again + widest);
  }
  Part(price, MemoryPart::kActivations) =
      w.activations_on_host ? 0 : per_micro_batch * MicroBatchesInFlight(w, rank);
  Part(price, MemoryPart::kWork) = largest_work;
  if (zero == 3) {
    // The block under way and the next one, and the gradient of one block before it is scattered.
    Part(price, MemoryPart::kWork) += stage.largest_layer * (2 * 2 + 4);
  }
  Part(price, MemoryPart::kWork) += f.bucket_elements * 2;
  if (f.weight_gradient_buffer) Part(price, MemoryPart::kWork) += stage.largest_layer * 2;

  // The loss is formed before the first backward frees anything, so that logits and the last layer's work
  // are not there together.
  if (rank == w.degrees.pp - 1) {
    const double logits = LogitBytes(w);
    if (logits > Part(price, MemoryPart::kWork)) {
      Part(price, MemoryPart::kLogits) = logits;
      Part(price, MemoryPart::kWork) = 0;
    }
  }

  int communicators = 1;
  for (int64_t degree : {w.degrees.tp, w.degrees.pp, w.degrees.cp, w.degrees.ep}) communicators += degree > 1;
  Part(price, MemoryPart::kOutside) = kContextBytes + communicators * kCommunicatorBytes;

  price.allocated_bytes =
      std::accumulate(price.parts.begin(), price.parts.end(), 0.0) - Part(price, MemoryPart::kOutside);
  price.reserved_bytes = price.allocated_bytes * kReservedShare;
  price.device_bytes = price.reserved_bytes + Part(price, MemoryPart::kOutside);
  price.upper_bytes = price.device_bytes * kUpperShare;
  return price;
}

}  // namespace

RankParameters ParametersOfRank(const Workload& w, int64_t rank) {
  const double tp = static_cast<double>(w.degrees.tp);
  RankParameters parameters;
  for (int64_t layer : LayersOfRank(w, rank)) {
    const LayerParameters p = ParametersOfLayer(w.model, layer);
    const double dense = static_cast<double>(p.matrices) / tp + static_cast<double>(p.vectors + p.router);
    const double experts = static_cast<double>(p.routed_experts) / static_cast<double>(w.degrees.ep);
    parameters.layers += dense;
    parameters.experts += experts;
    parameters.largest_layer = std::max(parameters.largest_layer, dense + experts);
  }
  const double table = PaddedVocab(w) * static_cast<double>(w.model.hidden) / tp;
  if (rank == 0) {
    parameters.tables += table + static_cast<double>(w.model.learned_positions * w.model.hidden);
  }
  // Tied embeddings over several stages are a copy on the last one.
  const bool last = rank == w.degrees.pp - 1;
  if (last && (!w.model.tied_embeddings || w.degrees.pp > 1)) parameters.tables += table;
  return parameters;
}

double ShardedElements(const RankParameters& parameters, const Workload& w) {
  const double group = static_cast<double>(w.degrees.shard_group * w.degrees.cp);
  const double expert_group = group * static_cast<double>(w.degrees.tp) / static_cast<double>(w.degrees.ep);
  return parameters.dense() / group + parameters.experts / std::max(1.0, expert_group);
}

double MemoryPrice::Of(MemoryMetric metric) const {
  switch (metric) {
    case MemoryMetric::kAllocated:
      return allocated_bytes;
    case MemoryMetric::kReserved:
      return reserved_bytes;
    case MemoryMetric::kDevice:
      return device_bytes;
  }
  return device_bytes;
}

double MicroBatchesInFlight(const Workload& w, int64_t rank) {
  const int64_t p = w.degrees.pp;
  const int64_t v = w.degrees.virtual_stages;
  const int64_t m = w.num_micro_batches();
  if (p == 1) return 1;
  if (v == 1) return static_cast<double>(std::min(m, p - rank));
  const int64_t chunks = std::min(m * v, (p - rank - 1) * 2 + (v - 1) * p + 1);
  return static_cast<double>(chunks) / static_cast<double>(v);
}

LayerRange LayersOfStage(const Workload& w, int64_t stage) {
  const int64_t stages = w.degrees.pp * w.degrees.virtual_stages;
  // Embedding and head are units of their own where they count as layers.
  const int64_t ends = w.framework->embedding_counts_as_layer && stages > 1 ? 2 : 0;
  const int64_t units = w.model.layers + ends;
  const int64_t base = units / stages;
  const int64_t extra = units % stages;
  const auto begin_of = [&](int64_t s) {
    if (s == stages) return w.model.layers;
    return std::clamp<int64_t>(s * base + std::min(s, extra) - ends / 2, 0, w.model.layers);
  };
  return {begin_of(stage), begin_of(stage + 1) - begin_of(stage)};
}

std::vector<int64_t> LayersOfRank(const Workload& w, int64_t rank) {
  std::vector<int64_t> layers;
  for (int64_t chunk = 0; chunk < w.degrees.virtual_stages; ++chunk) {
    const LayerRange range = LayersOfStage(w, chunk * w.degrees.pp + rank);
    for (int64_t i = 0; i < range.count; ++i) layers.push_back(range.first + i);
  }
  return layers;
}

MemoryPrice PriceMemory(const Workload& workload) {
  MemoryPrice worst;
  for (int64_t rank = 0; rank < workload.degrees.pp; ++rank) {
    const MemoryPrice price = PriceRank(workload, rank);
    if (rank == 0 || price.allocated_bytes > worst.allocated_bytes) worst = price;
  }
  return worst;
}

MemoryPrice PriceMemoryOfRank(const Workload& workload, int64_t rank) { return PriceRank(workload, rank); }

}  // namespace trainctl::pricing
