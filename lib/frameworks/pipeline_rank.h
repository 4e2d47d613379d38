// What one pipeline rank holds: its stages, their layers and parameters, and how many micro-batches
// wait in it for their backward. Memory and time both count from here. Pure; thread safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {

// Layers of one stage, of pp * virtual_stages in the order of the model: the first and their number. The
// workload's own cut where it has one; else even, and the first and the last stage have fewer where the
// framework counts the embedding as a layer.
struct LayerRange {
  int64_t first = 0;
  int64_t count = 0;
};
LayerRange LayersOfStage(const Workload& workload, int64_t stage);

// Rank r has the stages r, r + pp, r + 2 pp and so on; where the model is laid as a V (ZBV, V-Half, V-Min,
// DualPipeV) r and 2 pp - 1 - r; under DualPipe r and, of the second copy of the model, pp - 1 - r.
using StageList = absl::InlinedVector<int64_t, 8>;
StageList StagesOfRank(const Workload& workload, int64_t rank);
std::vector<int64_t> LayersOfRank(const Workload& workload, int64_t rank);

// Layers of a rank by what they are: all layers of one kind cost the same.
struct RankLayers {
  int64_t dense = 0;    // with a plain MLP
  int64_t experts = 0;  // with routed experts
  bool first = false;   // the embedding is here
  bool last = false;    // the output matrix and the loss are here
  int64_t count() const { return dense + experts; }
};
RankLayers LayerKindsOfRank(const Workload& workload, int64_t rank);

// Elements of a pipeline rank, on one of its tensor-parallel ranks.
struct RankParameters {
  double layers = 0;   // all but routed experts
  double tables = 0;   // embedding and output matrix
  double experts = 0;  // routed
  double largest_layer = 0;
  double dense() const { return layers + tables; }
  double all() const { return dense() + experts; }
};
RankParameters ParametersOfRank(const Workload& workload, int64_t rank);

// What one rank keeps of them where they are sharded: data and context parallel ranks share the dense part,
// and those of them that hold the same experts the routed one.
double ShardedElements(const RankParameters& parameters, const Workload& workload);
double ShardedDenseElements(const RankParameters& parameters, const Workload& workload);  // of the dense part

// Rows of the vocabulary with what the framework pads.
double PaddedVocab(const Workload& workload);

// Micro-batches, in units of one rank's whole activations, that wait for their backward on pipeline rank
// `rank` at its peak. Of GPipe, 1F1B and its interleaved forms by their closed forms; of the others from the
// schedule itself, played for at most three rounds of micro-batches, after which nothing new happens. A split
// backward holds on until its weight gradients are done. Under DualPipe the unit is one stage, half of what
// the rank holds.
double MicroBatchesInFlight(const Workload& workload, int64_t rank);

}  // namespace trainctl::frameworks
