#include "frameworks/price_time.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "frameworks/data_parallel_time.h"
#include "frameworks/layer_time.h"
#include "frameworks/pipeline_rank.h"
#include "frameworks/pipeline_time.h"
#include "frameworks/update_time.h"

namespace trainctl::frameworks {
namespace {

// Layers of one job are of few kinds: each is timed once.
class LayerTable {
 public:
  LayerTable(const Workload& workload, bool contention) : w_(workload), contention_(contention) {}

  const PassTimes& Of(int64_t layer, const LayerSwitches& switches) {
    std::optional<PassTimes>& times = kinds_[(HasExperts(w_.model, layer) ? 4 : 0) +
                                             (switches.recomputed ? 2 : 0) + (switches.offloaded ? 1 : 0)];
    if (!times.has_value()) times = LayerPassTimes(w_, layer, switches, contention_);
    return *times;
  }

 private:
  const Workload& w_;
  const bool contention_;
  std::array<std::optional<PassTimes>, 8> kinds_;
};

// One micro-batch through each stage. Of a rank's layers the first ones are recomputed, where not all are,
// and the first ones' activations wait in host memory.
std::vector<PassTimes> TimeStages(const Workload& w, bool contention) {
  const int64_t num_stages = w.mesh.pp * w.virtual_stages;
  std::vector<PassTimes> stages(static_cast<size_t>(num_stages));
  std::vector<bool> timed(stages.size(), false);
  LayerTable layers(w, contention);
  for (int64_t rank = 0; rank < w.mesh.pp; ++rank) {
    int64_t before = 0;  // layers of this rank
    for (int64_t s : StagesOfRank(w, rank)) {
      const LayerRange range = LayersOfStage(w, s);
      PassTimes& times = stages[static_cast<size_t>(s)];
      const bool is_timed = timed[static_cast<size_t>(s)];
      timed[static_cast<size_t>(s)] = true;
      for (int64_t i = range.first; i < range.first + range.count; ++i, ++before) {
        if (is_timed) continue;  // two ranks of a DualPipe hold it
        times.Add(layers.Of(i, {.recomputed = before < w.recomputed_layers.value_or(NumLayers(w.model)),
                                .offloaded = before < w.offloaded_layers}));
      }
    }
  }
  stages.back().Add(HeadPassTimes(w));
  return stages;
}

struct PricedStep {
  TimePrice price;
  std::vector<PassTimes> stages;
  DataParallelTimes data;
};

PricedStep Price(const Workload& w, const TimeOptions& options) {
  PricedStep priced;
  priced.stages = TimeStages(w, options.contention);
  const PipelineTimes pipeline = TimePipeline(w, priced.stages, options.contention);
  PassTimes first_rank;
  for (int64_t s : StagesOfRank(w, 0)) first_rank.Add(priced.stages[static_cast<size_t>(s)]);
  priced.data = TimeDataParallel(w, first_rank, options.contention);

  TimePrice& price = priced.price;
  price.compute_seconds = pipeline.busiest.compute();
  price.recompute_seconds = pipeline.busiest.recompute;
  price.tensor_seconds = pipeline.busiest.tensor();
  // Joined passes may end before the sum of their parts: they hide exchanges of tokens.
  price.pipeline_seconds = std::max(0.0, pipeline.waiting_seconds);
  price.expert_seconds = std::max(0.0, pipeline.busiest.expert() + std::min(0.0, pipeline.waiting_seconds));
  price.context_seconds = pipeline.busiest.context();
  price.data_seconds = priced.data.total();
  price.optimizer_seconds = UpdateSeconds(w);
  price.offload_seconds = pipeline.busiest.offload();
  price.step_seconds = price.compute_seconds + price.recompute_seconds + price.tensor_seconds +
                       price.expert_seconds + price.context_seconds + price.pipeline_seconds +
                       price.data_seconds + price.optimizer_seconds + price.offload_seconds;
  return priced;
}

}  // namespace

TimePrice PriceTime(const Workload& workload, const TimeOptions& options) {
  return Price(workload, options).price;
}

StepParts PartsOfStep(const Workload& workload, const TimeOptions& options) {
  const PricedStep priced = Price(workload, options);
  StepParts parts;
  parts.price = priced.price;
  for (const PassTimes& stage : priced.stages) {
    // Copies to the host are drawn with the passes that wait for them.
    parts.stages.push_back({stage.forward + stage.offload_forward,
                            stage.input_backward + stage.weight_backward + stage.offload_backward,
                            stage.recompute, stage.tensor(), stage.expert(), stage.context()});
  }
  parts.pipeline = PipelineCostsOf(workload, priced.stages, options.contention);
  parts.gather_seconds = priced.data.gather_seconds;
  parts.exposed_gather_seconds = priced.data.exposed_gather_seconds;
  parts.reduce_seconds = priced.data.reduce_seconds;
  parts.exposed_reduce_seconds = priced.data.exposed_reduce_seconds;
  return parts;
}

}  // namespace trainctl::frameworks
