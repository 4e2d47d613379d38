// Lower bounds of a step's time and memory in closed form: from the work of a layer, the embedding and the
// head, how often each runs and what is exchanged. No step is built. Pure; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layout/ledger.h"
#include "model/model_spec.h"
#include "schedule/build_step.h"
#include "schedule/pipeline.h"
#include "simulate/cost.h"

namespace trainctl::simulate {

struct StepBound {
  double seconds = 0;
  int64_t peak_bytes = 0;  // of the class that needs most
};

// Where the blocks of a step run, and for how many micro-batches.
struct StepShape {
  schedule::PipelinePlacement placement;
  std::vector<int> stage_begin;  // first block of each stage, then the number of blocks
  // By class: passes whose activations lie there whole at once, at least. Empty: one.
  std::vector<int> held = {};
};
StepShape DataParallelShape(int64_t layers, int64_t num_micro_batches);
StepShape ShapeOf(const schedule::PipelineSchedule& order, std::vector<int> stage_begin);

// Of a step of this shape, whatever its order. Of the ledger and the spec only the sizes of a layer, the
// embedding and the head count, so that those of a folded model do for the whole one.
StepBound BoundStep(const model::ModelSpec& spec, const layout::Ledger& ledger,
                    const schedule::BuildOptions& options, const StepShape& shape, const Rates& rates);

// `count` layers dealt out to `stages`, in the order of the model: all of the first, then of the next. By
// position in `stages`; nullopt: there are fewer.
std::optional<std::vector<int64_t>> DealFirst(int64_t count, const std::vector<int>& stages,
                                              const std::vector<int64_t>& stage_layers);

// The fewest layers of each stage without whose recomputation the peak's bound of some class is above
// `limit_bytes`; of a class with several stages those of the first stages first. nullopt: all are not enough.
// Of options that recompute layers.
std::optional<std::vector<int64_t>> LeastRecomputed(const model::ModelSpec& spec,
                                                    const layout::Ledger& ledger,
                                                    const schedule::BuildOptions& options,
                                                    const StepShape& shape, int64_t limit_bytes);

// A micro-batch through a block, forward and backward, the third one of a step.
struct BlockSeconds {
  double embedding = 0, layer = 0, head = 0;
};
BlockSeconds SecondsOfBlocks(const model::ModelSpec& spec, const layout::Ledger& ledger,
                             const schedule::BuildOptions& options, const Rates& rates);

// Of what PriceStep says of a data-parallel step of `layers` and `num_micro_batches`.
StepBound BoundPrice(const model::ModelSpec& spec, const layout::Ledger& ledger,
                     const schedule::BuildOptions& options, int64_t layers, int64_t num_micro_batches,
                     const Rates& rates);

}  // namespace trainctl::simulate
