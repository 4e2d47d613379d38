// Estimates the cost of a step without a pipeline from a step with few layers ("folding"). The layers form
// one or two runs of equal layers: the recomputed ones and the others. In the middle of a run, the builder's
// instructions repeat from layer to layer. The folded step has only a few layers of each run. The estimate
// plays the instructions of the whole step one by one. A repeated instruction has the seconds, bytes and
// waits of the instruction that it repeats. Only the persistent storage is extrapolated. The result is
// bit-identical to that of the whole step built with the same micro-batches. Pure functions; thread-safe.
//
//   FoldedModel model(spec);
//   FoldedStrategy strategy(model, mesh, zero_stage);
//   std::optional<StepPrice> price = strategy.Price(options, layout.num_micro_batches, rates);
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layout/ledger.h"
#include "model/architecture.h"
#include "model/parameters.h"
#include "schedule/build_step.h"
#include "simulate/bounds.h"
#include "simulate/cost.h"
#include "simulate/memory.h"

namespace trainctl::simulate {

// Estimated memory and time of a step.
struct StepPrice {
  MemoryReport memory;
  StepCost cost;
};

// Returns the estimate for a step that is not folded. Without a pipeline, `step` may have only
// kMicroBatchesToPrice of the `num_micro_batches` micro-batches (see PriceStep).
StepPrice PriceWhole(const schedule::Step& step, const layout::Ledger& ledger,
                     const schedule::BuildOptions& options, int64_t num_micro_batches, const Rates& rates);

// Number of layers of each run in a folded step: three at each end, where the use of slots and the prefetch
// differ from the middle of the run.
inline constexpr int64_t kFoldedLayers = 6;

// A model with few layers, which all strategies for one model share.
class FoldedModel {
 public:
  // `spec` must be valid for building a step. A model with at most `layers` layers, or with layers of several
  // kinds, is not folded.
  explicit FoldedModel(const model::Architecture& spec, int64_t layers = kFoldedLayers);

  int64_t repeats() const { return repeats_; }  // number of layers that the folded model leaves out

 private:
  friend class FoldedStrategy;
  struct Part {
    model::Architecture spec;
    std::vector<model::Parameter> inventory;
  };
  Part WithLayers(int64_t layers) const;

  int64_t folded_layers_ = 0;  // maximum number of layers of a run
  Part few_;
  Part one_more_;  // `few_` with one more layer; empty if no layers are left out
  int64_t repeats_ = 0;
};

// A mesh, a ZeRO stage and whether sequence parallelism is used. All layouts of a strategy share its ledgers.
// The model must outlive this object.
class FoldedStrategy {
 public:
  FoldedStrategy(const FoldedModel& model, const layout::Mesh& mesh, int zero_stage,
                 bool sequence_parallel = true);

  // The ledger of the folded model.
  const layout::Ledger& ledger() const { return few_; }

  // Returns an object that computes lower bounds of the results of Price, and of the cost of pipelines on
  // this mesh. It refers to this object and to `rates`, which must outlive it. Its graph_costs are the same
  // for all strategies with the same degree of tensor parallelism; `known`, if it is not null, must be those
  // of such a strategy, and is used instead of computing them.
  StepBounder Bounder(const schedule::BuildOptions& options, const Rates& rates,
                      const GraphCosts* known = nullptr) const;

  // Estimates a step of the whole model on a mesh without a pipeline. `options` are those of the whole model.
  // Returns nullopt if the step cannot be folded, because the instructions of the middle layers differ or
  // because the sums of gradient copies over tensor parallelism follow one another. Use PriceWhole then.
  std::optional<StepPrice> Price(const schedule::BuildOptions& options, int64_t num_micro_batches,
                                 const Rates& rates) const;

 private:
  // Estimates from a step of `part`. `whole_runs` has the number of layers of each run in the whole model.
  std::optional<StepPrice> PriceRuns(const schedule::BuildOptions& options, const FoldedModel::Part& part,
                                     const layout::Ledger& ledger, const std::vector<int64_t>& whole_runs,
                                     int64_t num_micro_batches, const Rates& rates) const;

  const FoldedModel& model_;
  const layout::Ledger few_;
  const std::optional<layout::Ledger> one_more_;
};

}  // namespace trainctl::simulate
