// Evaluates the bounds of every candidate of a walk (frameworks/bounds.h), some operations each: what depends
// on the layer, the layout of stages and the states alone is computed once. Internal to the planner. Not
// thread safe; each search has its own.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "frameworks/bounds.h"
#include "frameworks/explore.h"
#include "frameworks/explore_axes.h"
#include "frameworks/explore_rank.h"

namespace trainctl::frameworks {

// Takes what the bounder finds.
class BoundSink {
 public:
  virtual ~BoundSink() = default;
  // `seconds` of a step and `bytes` of a device are lower bounds of the candidate's own prices.
  virtual void Consider(const LayerAxes& layer, const PipeAxes& pipe, const StateAxes& state, double seconds,
                        double bytes) = 0;
};

// What the layers of one job take, by LayerAxes: the walks of a search share it.
using LayerTermsTable = absl::flat_hash_map<std::array<int64_t, 10>, LayerTerms>;

// The visitor of a LayoutWalk.
class Bounder {
 public:
  // `terms` is of searches of the same `base`, and outlives the bounder.
  Bounder(const Workload& base, BoundSink& sink, SearchCounts& counts, LayerTermsTable& terms)
      : base_(base), sink_(sink), counts_(counts), terms_(terms) {}

  bool Layer(const LayerAxes& layer);
  bool Pipe(const LayerAxes& layer, const PipeAxes& pipe, const std::vector<StateAxes>& states);
  void Refused() { ++counts_.refused; }

 private:
  // Of one state on one layout of the first pipeline rank.
  struct StateTable {
    StateTerms seconds;
    StateBytes bytes;
  };
  const PipelineLoad& LoadFor(const PipeAxes& pipe);
  const std::vector<StateTable>& TableFor(const LayerAxes& layer, const PipeAxes& pipe, const RankLoad& first,
                                          const std::vector<StateAxes>& states);

  const Workload& base_;
  BoundSink& sink_;
  SearchCounts& counts_;
  LayerTermsTable& terms_;
  std::map<std::array<int64_t, 4>, PipelineLoad> loads_;
  // Of the degrees under way.
  using Degrees = std::array<int64_t, 5>;
  Degrees degrees_ = {};
  std::map<std::array<int64_t, 3>, StateBytes> state_bytes_;
  std::map<std::array<int64_t, 6>, std::vector<StateTable>> state_tables_;
  std::array<int64_t, 6> table_key_ = {};
  const std::vector<StateTable>* table_ = nullptr;
  // Of the layer under way.
  Workload workload_;
  LayerTerms layer_terms_;
};

// A candidate that waits for its simulation.
struct Waiting {
  Score bound;
  double bytes_bound = 0;
  LayoutPoint point;
};

// Those of the least bounds, from a floor on; of more than some ten thousand the rest is left for another
// walk.
class WaitingList {
 public:
  explicit WaitingList(size_t capacity) : capacity_(capacity) { waiting_.reserve(2 * capacity); }
  void Start(const Score& floor);
  void Add(const Score& bound, double bytes_bound, const LayerAxes& layer, const PipeAxes& pipe,
           const StateAxes& state) {
    if (bound < floor_ || !(bound < ceiling_)) return;
    waiting_.push_back({bound, bytes_bound, {layer, pipe, state}});
    if (waiting_.size() >= 2 * capacity_) Shorten();
  }
  const std::vector<Waiting>& Sorted();
  // Everything below it is in the list.
  const Score& ceiling() const { return ceiling_; }

 private:
  void Shorten();

  size_t capacity_;
  Score floor_ = {-std::numeric_limits<double>::infinity(), 0};
  Score ceiling_ = {std::numeric_limits<double>::infinity(), 0};
  std::vector<Waiting> waiting_;
};

}  // namespace trainctl::frameworks
