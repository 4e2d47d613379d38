// Lower bounds of a step's time and memory in closed form: from the work of a layer, the embedding and the
// head, how often each runs and what is exchanged. No step is built. Pure; thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "layout/ledger.h"
#include "model/model_spec.h"
#include "model/segment.h"
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
inline constexpr int64_t kMaxPassesPlayed = int64_t{1} << 17;
StepShape ShapeOf(const schedule::PipelineSchedule& order, std::vector<int> stage_begin);

// `count` layers dealt out to `stages`, in the order of the model: all of the first, then of the next. By
// position in `stages`; nullopt: there are fewer.
std::optional<std::vector<int64_t>> DealFirst(int64_t count, const std::vector<int>& stages,
                                              const std::vector<int64_t>& stage_layers);

// A micro-batch through a block, forward and backward, the third one of a step.
struct BlockSeconds {
  double embedding = 0, layer = 0, head = 0;
};

// What a block and its bucket take.
struct BlockCost {
  double forward_s = 0;
  double again_s = 0;             // of a layer: a forward that only saves
  double backward_s[2] = {0, 0};  // both gradients and, of the head, the loss; [1]: added to what is there
  double input_backward_s = 0;    // at least, until the block before has its gradient
  double weight_backward_s = 0;   // at least, if that is a pass of its own
  double gather_s = 0;
  double reduce_s = 0;
  double last_reduce_s = 0;  // over the replicas as well
  double gather_updated_s = 0;
  double update_s = 0;
  int64_t padded_numel = 0;
  int64_t shard_numel = 0;
  model::SegmentMemory memory;
};

// Costs shared by the bounds of all steps with one ledger and one size of micro-batch.
struct StepCosts {
  std::array<BlockCost, 3> blocks;             // the embedding, a layer, the head
  double count_s = 0, loss_s = 0, norm_s = 0;  // sums of one number
  double send_s = 0;                           // a micro-batch from one stage to the next
  int64_t hidden_gradient_bytes = 0;
};

// Bounds for the steps of one ledger and size of micro-batch. The constructor computes the costs, which takes
// much longer than a bound. The options of a bound may differ from the constructor's in the number of
// micro-batches, and in recomputation between none and full. Only the sizes of a layer, the embedding and the
// head matter in the ledger and the spec, so those of a folded model serve for the whole one. Borrows the
// spec, the ledger and the rates.
class StepBounder {
 public:
  StepBounder(const model::ModelSpec& spec, const layout::Ledger& ledger,
              const schedule::BuildOptions& options, const Rates& rates);

  // Of a step of this shape, whatever the order of its passes if the shape has none.
  StepBound Bound(const schedule::BuildOptions& options, const StepShape& shape) const;
  // Of what PriceStep says of a data-parallel step.
  StepBound BoundDataParallel(const schedule::BuildOptions& options, int64_t layers,
                              int64_t num_micro_batches) const;
  // The fewest layers to recompute in each stage with which the peak's bound of every class is within
  // `limit_bytes`. In a class with several stages, the first stages come first. nullopt if all layers are not
  // enough. The options must be of full recompute.
  std::optional<std::vector<int64_t>> LeastRecomputed(const schedule::BuildOptions& options,
                                                      const StepShape& shape, int64_t limit_bytes) const;
  BlockSeconds SecondsOfBlocks(layout::Recompute recompute) const;

 private:
  const model::ModelSpec& spec_;
  const layout::Ledger& ledger_;
  const Rates& rates_;
  StepCosts costs_;
};

}  // namespace trainctl::simulate
