#include "frameworks/pipeline_rank.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "model/parameters.h"
#include "schedule/pipeline.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

// Stages in flight per rank of a schedule that has no closed form here. Schedules are few, ranks and
// questions many.
const std::vector<int>& SlotsOfSchedule(PipelineKind kind, const schedule::PipelineShape& shape) {
  using Key = std::tuple<PipelineKind, int64_t, int64_t, int64_t>;
  static std::mutex mutex;
  static auto* const known = new std::map<Key, std::vector<int>>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [it, is_new] =
      known->try_emplace(Key(kind, shape.ranks, shape.num_micro_batches, shape.virtual_stages));
  if (is_new) {
    const auto built = schedule::BuildPipeline(kind, shape);
    TRAINCTL_CHECK_MSG(built.ok(), built.status().message());
    it->second = PeaksInFlight(*built);
  }
  return it->second;
}

// Parts of equal size as far as they go, the longer ones first.
LayerRange EvenPart(int64_t units, int64_t parts, int64_t part) {
  const int64_t base = units / parts;
  const int64_t extra = units % parts;
  return {part * base + std::min(part, extra), base + (part < extra ? 1 : 0)};
}

}  // namespace

LayerRange LayersOfStage(const Workload& w, int64_t stage) {
  const int64_t stages = w.mesh.pp * w.virtual_stages;
  if (!w.stage_layers.empty()) {
    LayerRange range;
    for (int64_t s = 0; s < stage; ++s) range.first += w.stage_layers[static_cast<size_t>(s)];
    range.count = w.stage_layers[static_cast<size_t>(stage)];
    return range;
  }
  const bool ends = w.embedding_is_layer.value_or(w.framework->embedding_counts_as_layer) && stages > 1;
  if (!ends) {
    if (!w.framework->fills_stages || stages == 1) return EvenPart(NumLayers(w.model), stages, stage);
    // Each stage takes as many as the longest must have, the last what is left.
    const int64_t longest = (NumLayers(w.model) + stages - 1) / stages;
    const int64_t first = std::min(NumLayers(w.model), stage * longest);
    return {first, std::min(longest, NumLayers(w.model) - first)};
  }
  const auto begin_of = [&](int64_t s) {
    if (s == stages) return NumLayers(w.model);
    return std::clamp<int64_t>(EvenPart(NumLayers(w.model) + 2, stages, s).first - 1, 0, NumLayers(w.model));
  };
  return {begin_of(stage), begin_of(stage + 1) - begin_of(stage)};
}

StageList StagesOfRank(const Workload& w, int64_t rank) {
  const int64_t p = w.mesh.pp;
  const schedule::PipelineOrder& order = schedule::OrderOf(w.Pipeline());
  const int num_copies = p > 1 ? order.num_copies() : 1;
  StageList stages;
  for (int copy = 0; copy < num_copies; ++copy) {
    for (int64_t round = 0; round < w.virtual_stages; ++round)
      stages.push_back(order.StageOf(copy, round, rank, p));
  }
  return stages;
}

std::vector<int64_t> LayersOfRank(const Workload& w, int64_t rank) {
  std::vector<int64_t> layers;
  for (int64_t stage : StagesOfRank(w, rank)) {
    const LayerRange range = LayersOfStage(w, stage);
    for (int64_t i = 0; i < range.count; ++i) layers.push_back(range.first + i);
  }
  return layers;
}

RankLayers LayerKindsOfRank(const Workload& w, int64_t rank) {
  const int64_t last_stage = w.mesh.pp * w.virtual_stages - 1;
  const int64_t dense = NumDenseLayers(w.model);
  RankLayers kinds;
  for (int64_t stage : StagesOfRank(w, rank)) {
    const LayerRange range = LayersOfStage(w, stage);
    const int64_t plain = std::clamp<int64_t>(dense - range.first, 0, range.count);
    kinds.dense += plain;
    kinds.experts += range.count - plain;
    kinds.first |= stage == 0;
    kinds.last |= stage == last_stage;
  }
  return kinds;
}

double PaddedVocab(const Workload& w) {
  const int64_t multiple = w.framework->vocab_multiple > 1 ? w.framework->vocab_multiple * w.mesh.tp : 1;
  const int64_t rows = (w.model.vocab + multiple - 1) / multiple * multiple;
  return static_cast<double>(rows);
}

RankParameters ParametersOfRank(const Workload& w, int64_t rank) {
  const double tp = static_cast<double>(w.mesh.tp);
  const RankLayers kinds = LayerKindsOfRank(w, rank);
  RankParameters parameters;
  const auto add = [&](int64_t layer, int64_t count) {
    if (count == 0) return;
    const model::LayerParameters p = ParametersOfLayer(w.model, layer);
    const double dense = static_cast<double>(p.matrices) / tp + static_cast<double>(p.vectors + p.router);
    const double experts = static_cast<double>(p.routed_experts) /
                           (static_cast<double>(w.mesh.ep) * static_cast<double>(w.mesh.etp));
    parameters.layers += static_cast<double>(count) * dense;
    parameters.experts += static_cast<double>(count) * experts;
    parameters.largest_layer = std::max(parameters.largest_layer, dense + experts);
  };
  add(0, kinds.dense);
  add(NumLayers(w.model) - 1, kinds.experts);
  const double table = PaddedVocab(w) * static_cast<double>(w.model.hidden) / tp;
  if (kinds.first)
    parameters.tables += table + static_cast<double>(w.model.learned_positions * w.model.hidden);
  // Tied embeddings over several stages are a copy on the last one.
  if (kinds.last && !(w.model.tie_embeddings && kinds.first)) parameters.tables += table;
  return parameters;
}

double ShardedElements(const RankParameters& parameters, const Workload& w) {
  const double group = static_cast<double>(w.mesh.dp_shard * w.mesh.cp);
  const double expert_group = group * static_cast<double>(w.mesh.tp) /
                              (static_cast<double>(w.mesh.ep) * static_cast<double>(w.mesh.etp));
  return ShardedDenseElements(parameters, w) + parameters.experts / std::max(1.0, expert_group);
}

double ShardedDenseElements(const RankParameters& parameters, const Workload& w) {
  return parameters.dense() / static_cast<double>(w.mesh.dp_shard * w.mesh.cp);
}

double MicroBatchesInFlight(const Workload& w, int64_t rank) {
  const int64_t p = w.mesh.pp;
  const int64_t v = w.virtual_stages;
  const int64_t m = w.num_micro_batches();
  if (p == 1) return 1;
  const schedule::PipelineOrder& order = schedule::OrderOf(w.Pipeline());
  const auto share = [v](int64_t stages) { return static_cast<double>(stages) / static_cast<double>(v); };
  if (order.in_flight != nullptr) return share(order.in_flight(w.PipelineShapeFor(m), rank));
  // Past two rounds the pattern repeats.
  const int64_t played = m <= 3 * p ? m : 2 * p + m % p;
  const std::vector<int>& slots = SlotsOfSchedule(w.Pipeline(), w.PipelineShapeFor(played));
  // Of DualPipe, too, a micro-batch has one stage on a rank: of its own copy of the model.
  return share(slots[static_cast<size_t>(rank)]);
}

}  // namespace trainctl::frameworks
