// Lower bounds of a step's time and memory. They are computed from the work of a layer, the embedding and the
// head, from how often each of them runs, and from the communication. No step is built, so a bound is much
// cheaper than a simulation. If the order of a pipeline is known, its passes are played, but not their
// instructions. Pure functions; thread-safe.
//
//   StepBounder bounder(graph, ledger, options, rates);
//   StepBound bound = bounder.BoundDataParallel(options, layers, num_micro_batches);
//   if (bound.peak_bytes > limit_bytes) ...;  // the layout cannot fit
//
// A class is the set of ranks at one position of the pipeline (schedule/step.h). A block is the embedding, a
// layer or the head.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "layout/ledger.h"
#include "model/graph.h"
#include "schedule/build_step.h"
#include "schedule/pipeline.h"
#include "simulate/cost.h"
#include "simulate/stage_costs.h"

namespace trainctl::simulate {

struct StepBound {
  double seconds = 0;
  int64_t peak_bytes = 0;  // bound for the class that needs the most memory
};

// The passes whose activations a class holds at one moment.
struct HeldPasses {
  int whole = 0;    // passes between their forward and their backward, with all saved activations
  int waiting = 0;  // passes between their input backward and their separate weight backward
};

// The stages in which the blocks of a step run, and the number of micro-batches.
struct StepShape {
  schedule::PipelinePlacement placement;
  std::vector<int> stage_begin;  // first block of each stage, then the number of blocks
  // For each class, the moments with the most passes: no other moment has at least as many of both kinds. If
  // empty, each class holds one whole pass.
  std::vector<std::vector<HeldPasses>> held = {};
  // The pipeline's order, which Bound plays for a tighter bound. nullopt if the order is unknown, too long or
  // has joined passes.
  std::optional<PassList> passes = std::nullopt;
};
// Returns the shape of a step without a pipeline. `layers` excludes the embedding and the head.
StepShape DataParallelShape(int64_t layers, int64_t num_micro_batches);
// Largest number of passes in an order that ShapeOf keeps in StepShape::passes. Preparing a longer order
// takes as much time as the tighter bound saves.
inline constexpr int64_t kMaxPassesPlayed = int64_t{1} << 17;
// Returns the shape of a step that runs a pipeline in this order. `stage_begin` is as in StepShape.
StepShape ShapeOf(const schedule::PipelineSchedule& order, std::vector<int> stage_begin);

// Distributes `count` layers over `stages`. Takes all layers of the first stage before it takes any of the
// next stage. `stages` are indices into `stage_layers`, which has the number of layers of each stage. Returns
// the number of layers for each entry of `stages`, or nullopt if the stages have fewer than `count` layers in
// total.
std::optional<std::vector<int64_t>> DealFirst(int64_t count, const std::vector<int>& stages,
                                              const std::vector<int64_t>& stage_layers);

// Seconds of a forward and backward of one micro-batch, by kind of block. The backward adds to existing
// gradients, as it does for every micro-batch after the first if the gradients are not sharded.
struct BlockSeconds {
  double embedding = 0, layer = 0, head = 0;
};

// Cost of the passes of a block.
struct PassCost {
  double forward_s = 0;
  double again_s = 0;  // recomputation of a layer; 0 for the embedding and the head
  // Backward of the input and the weights, and the loss if the block is the head. [0] overwrites the
  // gradients, and [1] adds to existing ones.
  double backward_s[2] = {0, 0};
  double input_backward_s = 0;   // minimum time until the previous block can start its backward
  double weight_backward_s = 0;  // minimum time of a separate weight backward
  model::SegmentMemory memory;
};

// Cost of the bucket with the parameters of a block.
struct BucketCost {
  double gather_s = 0;          // all-gather of the parameters over dp_shard
  double reduce_s = 0;          // reduce-scatter of the gradients over dp_shard
  double last_reduce_s = 0;     // reduce_s plus the all-reduce over dp_replicate
  double gather_updated_s = 0;  // all-gather of the updated parameters (ZeRO stages 1 and 2)
  double update_s = 0;          // optimizer step
  int64_t padded_numel = 0;     // elements of the bucket with padding
  int64_t shard_numel = 0;      // elements per dp_shard rank
};

// Costs that depend on the graph and the rates, and not on how data parallelism and pipelines use the
// workers.
struct GraphCosts {
  std::shared_ptr<const model::Graph> graph;
  // The embedding, a layer, the head. If layers are of several kinds, their least costs.
  std::array<PassCost, 3> blocks;
};
// Returns a lower bound, in seconds, for every step that runs the graph's passes in any order. It is the mean
// compute time of a pipeline's ranks for a model with `layers` layers. Much looser than the bounds of
// StepBounder, but takes almost no time to compute.
double MeanPassSeconds(const GraphCosts& costs, int64_t layers, int64_t num_micro_batches, int64_t pp,
                       const Rates& rates);

// Costs that depend on the ledger and the rates, and not on the micro-batch.
struct LedgerCosts {
  std::array<BucketCost, 3> blocks;  // the embedding, a layer, the head
  // All-reduces of one number: the count of loss tokens, the loss and the gradient norm.
  double count_s = 0, loss_s = 0, norm_s = 0;
};

struct BlockCost : PassCost, BucketCost {};

// Costs shared by the bounds of all steps with one ledger and one micro-batch size.
struct StepCosts {
  std::array<BlockCost, 3> blocks;             // the embedding, a layer, the head
  double count_s = 0, loss_s = 0, norm_s = 0;  // as in LedgerCosts
  double send_s = 0;                           // message with one micro-batch between two stages
  int64_t hidden_gradient_bytes = 0;           // gradient of the activations between two blocks
};

// Computes bounds for the steps of one ledger and one micro-batch size. Computing the costs takes much longer
// than a bound. A search can therefore share them between bounders. The options passed to a method may differ
// from the constructor's in the number of micro-batches, and in whether recomputation is none or full. Of the
// ledger and the graph, only the sizes of a layer, the embedding and the head matter. The ledger and graph of
// a folded model (fold.h) therefore give the bounds of the whole model. The ledger and the rates must outlive
// this object.
class StepBounder {
 public:
  // If `known` is not null, takes the costs of the graph's passes from it. They must be those of this graph.
  StepBounder(std::shared_ptr<const model::Graph> graph, const layout::Ledger& ledger,
              const schedule::BuildOptions& options, const Rates& rates, const GraphCosts* known = nullptr);
  // `graph_costs` and `ledger_costs` are from bounders of the same graph and of the same ledger.
  StepBounder(const GraphCosts& graph_costs, const LedgerCosts& ledger_costs, const layout::Ledger& ledger,
              const Rates& rates);

  GraphCosts graph_costs() const;
  LedgerCosts ledger_costs() const;

  // Returns the bound of a step with this shape. If `shape.passes` is nullopt, the bound of the time holds
  // for every order of the passes.
  StepBound Bound(const schedule::BuildOptions& options, const StepShape& shape) const;
  // Returns a lower bound of PriceStep's result (cost.h) for a step without a pipeline.
  StepBound BoundDataParallel(const schedule::BuildOptions& options, int64_t layers,
                              int64_t num_micro_batches) const;
  // Returns, by stage, the smallest numbers of recomputed layers for which the peak-memory bound of every
  // class is at most `limit_bytes`. A class with several stages recomputes the layers of its first stages
  // first. Returns nullopt if recomputing all layers is not enough. `options.recompute` must be kFull.
  std::optional<std::vector<int64_t>> LeastRecomputed(const schedule::BuildOptions& options,
                                                      const StepShape& shape, int64_t limit_bytes) const;
  // Returns the time of each kind of block, including the recomputation of the layer if `recompute` is kFull.
  BlockSeconds SecondsOfBlocks(layout::Recompute recompute) const;

 private:
  const std::shared_ptr<const model::Graph> graph_;
  const layout::Ledger& ledger_;
  const Rates& rates_;
  StepCosts costs_;
};

}  // namespace trainctl::simulate
