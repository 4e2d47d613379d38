// The candidates of a search space: which values each axis takes, and a walk over all their
// combinations that leaves out impossible shapes as early as it can. Internal to the planner. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frameworks/explore.h"

namespace trainctl::frameworks {

// What decides the work of one layer on one rank.
struct LayerAxes {
  Precision precision = Precision::kBf16;
  int64_t tp = 1, cp = 1, ep = 1, etp = 1, micro_batch = 1;
  bool sequence_parallel = false;
  ContextKind context = ContextKind::kRing;
  RecomputeKind recompute = RecomputeKind::kNone;
  bool activations_on_host = false;
};

// What decides how layers and micro-batches are laid out.
struct PipeAxes {
  int64_t num_gpus = 1;
  int64_t pp = 1, dp = 1, virtual_stages = 1;
  int64_t num_micro_batches = 1;
  schedule::PipelineKind kind = schedule::PipelineKind::k1F1B;
  StageSplit split = StageSplit::kEven;
  int64_t recomputed_layers = -1;  // of a rank, with full recompute; -1: all
};

// What decides where the states are.
struct StateAxes {
  int zero_stage = 0;
  int64_t shard_group = 1;
  bool optimizer_on_host = false;
};

struct LayoutPoint {
  LayerAxes layer;
  PipeAxes pipe;
  StateAxes state;
};

// All values, simpler layouts first: orders layouts that are equally good, whatever order they came in.
using LayoutKey = std::array<int64_t, 22>;
LayoutKey KeyOf(const LayoutPoint& point);

// `base` laid out as `point` says.
Workload WorkloadOf(const Workload& base, const LayoutPoint& point);
// Layers of each stage; empty: the framework's way.
std::vector<int64_t> StageLayersOf(const Workload& base, const PipeAxes& pipe);

// Values of the axes, every one positive and once. Empty: derived in the walk from the outer ones.
struct Axes {
  const SearchSpace* space = nullptr;
  bool wide = false;  // what is looked at only if nothing else fits, too
  std::vector<int64_t> gpu_counts;
  std::vector<Precision> precision;
  std::vector<int64_t> tp;
};
// UsageError names the list and the value.
absl::StatusOr<Axes> ResolveAxes(const SearchSpace& space, const Goal& goal, bool wide);
// Whether `wide` adds anything.
bool CanWiden(const SearchSpace& space);

// The constraints (and the fixed numbers) without which there would be candidates, for an error.
std::string WhatExcludesAll(const SearchSpace& space, const Goal& goal);

// Calls, of a Visitor:
//   bool Layer(const LayerAxes&)                    false: leave this branch out
//   bool Pipe(const LayerAxes&, const PipeAxes&, const std::vector<StateAxes>&)   false: stop the walk
//   void Refused()
// Layer is called while it is open whether anything below it is possible. Combinations come with the degrees
// (precision, tp, cp, ep, etp) in the outer loops; the list of states is the same for the same dp, cp > 1 and
// pp > 1.
class LayoutWalk {
 public:
  explicit LayoutWalk(const Axes& axes);

  template <typename Visitor>
  void Run(Visitor& visitor) {
    for (const Precision precision : axes_.precision) {
      for (const int64_t tp : axes_.tp) {
        for (const int64_t cp : ContextDegrees(tp)) {
          for (const auto& [ep, etp] : ExpertDegrees(tp)) {
            LayerAxes layer{.precision = precision, .tp = tp, .cp = cp, .ep = ep, .etp = etp};
            if (!RunBatches(layer, visitor)) return;
          }
        }
      }
    }
  }

 private:
  struct Stages {  // of one pp: what pipelines it can have
    int64_t virtual_stages;
    schedule::PipelineKind kind;
    StageSplit split;
  };

  template <typename Visitor>
  bool RunBatches(LayerAxes layer, Visitor& visitor) {
    // The placements that these degrees leave, the same for all that follows.
    struct Placement {
      int64_t num_gpus, pp, dp;
    };
    std::vector<Placement> placements;
    for (const int64_t num_gpus : axes_.gpu_counts) {
      for (const int64_t pp : PipelineDegrees(num_gpus, layer.tp * layer.cp)) {
        const int64_t dp = num_gpus / (layer.tp * layer.cp * pp);
        if (!MayUse(space_.dp, dp) || layer.tp * layer.cp * dp % (layer.ep * layer.etp) != 0 ||
            space_.base.global_batch % dp != 0) {
          visitor.Refused();
          continue;
        }
        placements.push_back({num_gpus, pp, dp});
      }
    }
    if (placements.empty()) return true;
    int64_t least_dp = placements[0].dp;
    for (const Placement& placement : placements) least_dp = std::min(least_dp, placement.dp);
    for (const int64_t micro_batch : MicroBatches(least_dp)) {
      layer.micro_batch = micro_batch;
      for (const bool sequence_parallel : SequenceParallel(layer.tp)) {
        layer.sequence_parallel = sequence_parallel;
        for (const ContextKind context : Contexts(layer.tp, layer.cp)) {
          layer.context = context;
          for (const RecomputeKind recompute : recomputes_) {
            layer.recompute = recompute;
            for (const bool on_host : activations_on_host_) {
              layer.activations_on_host = on_host;
              if (!visitor.Layer(layer)) continue;
              for (const Placement& placement : placements) {
                PipeAxes pipe{.num_gpus = placement.num_gpus, .pp = placement.pp, .dp = placement.dp};
                if (space_.base.global_batch % (micro_batch * pipe.dp) != 0) {
                  visitor.Refused();
                  continue;
                }
                pipe.num_micro_batches = space_.base.global_batch / (micro_batch * pipe.dp);
                if (!RunPipelines(layer, pipe, visitor)) return false;
              }
            }
          }
        }
      }
    }
    return true;
  }

  template <typename Visitor>
  bool RunPipelines(const LayerAxes& layer, PipeAxes pipe, Visitor& visitor) {
    const std::vector<StateAxes>& states = States(layer, pipe);
    for (const Stages& stages : StagesFor(pipe.pp)) {
      pipe.kind = stages.kind;
      pipe.virtual_stages = stages.virtual_stages;
      pipe.split = stages.split;
      if (!ShapeIsPossible(pipe)) {
        visitor.Refused();
        continue;
      }
      for (const int64_t recomputed : RecomputedLayers(layer.recompute, pipe.pp)) {
        pipe.recomputed_layers = recomputed;
        if (!visitor.Pipe(layer, pipe, states)) return false;
      }
    }
    return true;
  }

  // Whether `value` is among the constraints.
  static bool MayUse(const std::vector<int64_t>& values, int64_t value) {
    return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
  }
  std::vector<int64_t> ContextDegrees(int64_t tp) const;
  std::vector<std::pair<int64_t, int64_t>> ExpertDegrees(int64_t tp) const;
  std::vector<int64_t> PipelineDegrees(int64_t num_gpus, int64_t inner) const;
  std::vector<int64_t> MicroBatches(int64_t least_dp) const;
  std::vector<bool> SequenceParallel(int64_t tp) const;
  std::vector<ContextKind> Contexts(int64_t tp, int64_t cp) const;
  const std::vector<Stages>& StagesFor(int64_t pp);
  std::vector<StageSplit> Splits(int64_t pp) const;
  const std::vector<StateAxes>& States(const LayerAxes& layer, const PipeAxes& pipe);
  bool ShapeIsPossible(const PipeAxes& pipe) const;
  std::vector<RecomputeKind> Recomputes() const;
  const std::vector<int64_t>& RecomputedLayers(RecomputeKind recompute, int64_t pp);

  const Axes& axes_;
  const SearchSpace& space_;
  std::vector<RecomputeKind> recomputes_;
  std::vector<int64_t> recomputed_layers_, all_layers_ = {-1};
  std::vector<bool> activations_on_host_, optimizer_on_host_;
  std::vector<std::pair<int64_t, std::vector<Stages>>> stages_;
  std::vector<std::pair<std::array<int64_t, 3>, std::vector<StateAxes>>> states_;
};

}  // namespace trainctl::frameworks
