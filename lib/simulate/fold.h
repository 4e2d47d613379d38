// Prices a data-parallel step from one with few layers: the layers are alike, or the recomputed ones and the
// others are, so what the builder does in the middle of each repeats. The instructions of the whole step are
// played one by one, each with the seconds, bytes and waits of the one that it repeats; nothing is
// extrapolated but the storage that lives throughout. The result equals that of the whole step, built with
// the same micro-batches, to the bit. Pure; thread safe.
//
//   FoldedModel model(spec);
//   FoldedStrategy strategy(model, mesh, zero_stage);
//   std::optional<StepPrice> price = strategy.Price(options, layout.num_micro_batches, rates);
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layout/ledger.h"
#include "model/model_spec.h"
#include "schedule/build_step.h"
#include "simulate/bounds.h"
#include "simulate/cost.h"
#include "simulate/memory.h"

namespace trainctl::simulate {

// What a step needs and takes.
struct StepPrice {
  MemoryReport memory;
  StepCost cost;
};

// The same from a step that is there, one of at most kMicroBatchesToPrice.
StepPrice PriceWhole(const schedule::Step& step, const model::ModelSpec& spec, const layout::Ledger& ledger,
                     const schedule::BuildOptions& options, int64_t num_micro_batches, const Rates& rates);

// Layers of a folded step, of each kind: three at each end, where slots and prefetch are not yet steady, or
// no longer.
inline constexpr int64_t kFoldedLayers = 6;

// What the strategies of a model share.
class FoldedModel {
 public:
  // A model that a step can be built of. One of at most `layers` is its own folded model.
  explicit FoldedModel(const model::ModelSpec& spec, int64_t layers = kFoldedLayers);

  int64_t repeats() const { return repeats_; }  // layers left out

 private:
  friend class FoldedStrategy;
  struct Part {
    model::ModelSpec spec;
    std::vector<model::Parameter> inventory;
  };
  Part WithLayers(int64_t layers) const;

  int64_t folded_layers_ = 0;  // of a kind, at most
  Part few_;
  Part one_more_;  // with a layer more; empty where nothing repeats
  int64_t repeats_ = 0;
};

// A mesh, a ZeRO stage, and what the ledger says of tp; its variants share the ledgers. Borrows the model.
class FoldedStrategy {
 public:
  FoldedStrategy(const FoldedModel& model, const layout::Mesh& mesh, int zero_stage,
                 bool sequence_parallel = true);

  const layout::Ledger& ledger() const { return few_; }

  // Lower bounds of what Price says, and of pipelines on this mesh.
  StepBounder Bounder(const schedule::BuildOptions& options, const Rates& rates) const;

  // Of a mesh without a pipeline; `options` as for the whole model. std::nullopt: the layers in the middle
  // are not alike, or sums of copies over tp come in a row.
  std::optional<StepPrice> Price(const schedule::BuildOptions& options, int64_t num_micro_batches,
                                 const Rates& rates) const;

 private:
  // From a step of `part`, whose runs of equal layers are those of the whole model, folded.
  std::optional<StepPrice> PriceRuns(const schedule::BuildOptions& options, const FoldedModel::Part& part,
                                     const layout::Ledger& ledger, const std::vector<int64_t>& whole_runs,
                                     int64_t num_micro_batches, const Rates& rates) const;

  const FoldedModel& model_;
  const layout::Ledger few_;
  const std::optional<layout::Ledger> one_more_;
};

}  // namespace trainctl::simulate
