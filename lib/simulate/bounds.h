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
#include "simulate/stage_costs.h"

namespace trainctl::simulate {

struct StepBound {
  double seconds = 0;
  int64_t peak_bytes = 0;  // of the class that needs most
};

// Passes of a class whose activations lie there at one moment: whole, from the forward to the backward, and
// what of them waits for a weight backward of its own.
struct HeldPasses {
  int whole = 0;
  int waiting = 0;
};

// Where the blocks of a step run, and for how many micro-batches.
struct StepShape {
  schedule::PipelinePlacement placement;
  std::vector<int> stage_begin;  // first block of each stage, then the number of blocks
  // By class: the moments at which most is held. Empty: one pass, whole.
  std::vector<std::vector<HeldPasses>> held = {};
  std::optional<PassList> passes = std::nullopt;  // the order of a pipeline, if it is known
};
StepShape DataParallelShape(int64_t layers, int64_t num_micro_batches);
// Of more passes the order is not played: building it costs as much as what it saves.
inline constexpr int64_t kMaxPassesPlayed = int64_t{1} << 14;
StepShape ShapeOf(const schedule::PipelineSchedule& order, std::vector<int> stage_begin);

// Of a step of this shape, whatever its order where that is not known. Of the ledger and the spec only the
// sizes of a layer, the embedding and the head count, so that those of a folded model do for the whole one.
StepBound BoundStep(const model::ModelSpec& spec, const layout::Ledger& ledger,
                    const schedule::BuildOptions& options, const StepShape& shape, const Rates& rates);
// The same of several shapes.
std::vector<StepBound> BoundSteps(const model::ModelSpec& spec, const layout::Ledger& ledger,
                                  const schedule::BuildOptions& options, const std::vector<StepShape>& shapes,
                                  const Rates& rates);

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
