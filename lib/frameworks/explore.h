// The search over all layouts of a job on a cluster, with its prices: which degrees, schedule,
// sharding, micro-batch and recompute reach the goal. Exact: the answer is that of pricing every
// candidate, but most are ruled out by lower bounds of their own memory and time (frameworks/bounds.h).
// Pure; thread safe. docs/design/planner.md says how it works.
//
//   SearchSpace space;
//   space.base = workload;  // model, batch, precision, device, node, framework
//   space.num_gpus = 64;
//   space.tp = {8};         // a constraint; an axis that is left empty is free
//   TRAINCTL_ASSIGN_OR_RETURN(SearchResult found, Explore(space, Goal()));
//   if (!found.best.empty()) Use(found.best[0].workload);
//
// What a free axis ranges over ("everything that makes sense"):
//   tp              divisors of the heads and of the node's GPUs
//   cp              powers of two that leave a rank 2,048 tokens of a sequence, an even number of pieces
//   ep, etp         divisors of the experts; etp 1, or tp where that leaves a rank 1,024 of an expert's ffn;
//                   ep * etp divides tp * cp * dp
//   pp              divisors of what is left of the GPUs, at most a stage a layer and 256
//   pipeline        all kinds for pp > 1 that the shape allows; DualPipe and DualPipeV only where asked for,
//                   since they are made for the overlap of an exchange of tokens: with experts
//   virtual_stages  divisors of the layers of a rank, at most 16 (where pp divides the layers), or all of
//                   2, 3, 4, 6, 8, 12, 16 that leave a stage a layer; at most 512 stages in all
//   micro_batch     powers of two
//   zero_stage      0 to 3
//   shard_group     divisors of dp above 1 (1 at stage 0)
//   sequence_parallel  both with tp > 1
//   context         all kinds with cp > 1; all-to-all where its degree divides the heads
//   recompute       none, full; selective where the framework's differs from none
//   recomputed_layers  with full recompute: all, or one to three quarters of a rank's layers
//   stage_split     with pp > 1 even and embedding-aware, unless the framework's way is that already
//   the others      as in `base`
// Only if nothing of that fits are looked at, unless fixed: tp beyond a node, optimizer and activations in
// host memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"
#include "frameworks/workload.h"
#include "schedule/pipeline.h"
#include "simulate/effective_time.h"

namespace trainctl::frameworks {

// How layers are cut into stages.
enum class StageSplit : uint8_t {
  kEven,            // the framework's way
  kEmbeddingAware,  // embedding and head count as a layer each, so that the first and last stage have fewer
  kGiven,           // base.stage_layers
};

struct SearchSpace {
  // What is fixed: model, seq_len, global_batch, precision, device, node, framework. Degrees, micro_batch,
  // recompute and pipeline are overwritten. stage_layers, where there are any, are the only cut, and
  // pp * virtual_stages is their number.
  Workload base;
  int64_t num_gpus = 0;  // of the cluster; all are used unless gpu_counts or the goal says otherwise
  std::vector<int64_t> gpu_counts;  // numbers to choose from
  double memory_limit_bytes = 0;    // per device, for MemoryPrice::upper_bytes; 0: the device's memory

  // Empty: see above. Else only these values.
  std::vector<int64_t> tp, pp, virtual_stages, cp, ep, etp, micro_batch, shard_group, dp;
  std::vector<int> zero_stage;
  std::vector<RecomputeKind> recompute;
  std::vector<int64_t> recomputed_layers;  // of a pipeline rank, with full recompute; -1: all
  std::vector<schedule::PipelineKind> pipeline;
  std::vector<ContextKind> context;
  std::vector<bool> sequence_parallel, optimizer_on_host, activations_on_host;
  std::vector<Precision> precision;
  std::vector<StageSplit> stage_split;
};

enum class Objective : uint8_t {
  kStepTime,
  kCost,        // price_per_gpu_hour * GPUs * time
  kHeadroom,    // least memory
  kFewestGpus,  // that fit (and meet the deadline); of those the fastest
};

struct Failures {
  double gpu_mtbf_seconds = 0;    // mean time between failures of one device
  double restart_seconds = 0;     // from a failure to the first repeated step
  double save_every_seconds = 0;  // 0: the best interval
};

struct Goal {
  Objective objective = Objective::kStepTime;
  double price_per_gpu_hour = 0;  // any currency; of kCost only, where 0 counts GPU hours
  // With both positive, `tokens` are trained in `deadline_seconds`, or the choice does not count.
  double deadline_seconds = 0;
  int64_t tokens = 0;
  // Counted in steps that last: of every choice what EffectiveTimeOf says.
  std::optional<Failures> failures;
};

struct Choice {
  Workload workload;
  MemoryPrice memory;
  TimePrice time;
  bool fits = false;

  int64_t num_gpus() const { return workload.mesh.world_size(); }
};

// A choice's step with what saves and failures take; the step itself where nothing fails.
simulate::EffectiveTime EffectiveTimeOf(const Goal& goal, const Choice& choice);

struct SearchCounts {
  int64_t enumerated = 0;        // by the walk: refused or bounded
  int64_t refused = 0;           // shapes that cannot be, one for a whole branch; what Validate refuses
  int64_t bounded = 0;           // own memory and time bounds were evaluated
  int64_t pruned_by_memory = 0;  // bound above the limit
  int64_t pruned_by_time = 0;    // bound above what was found
  int64_t misfits = 0;           // bound below the limit, price above it
  int64_t simulated = 0;         // PriceTime
  double seconds = 0;
};

struct SearchResult {
  std::vector<Choice> best;  // best first, at most ExploreOptions::keep
  // Fastest first, see ExploreOptions::pareto_step: step time against memory, or under kFewestGpus against
  // the number of GPUs.
  std::vector<Choice> pareto;
  // Where `best` is empty: the layout that needs least memory (within the limit if only the host's memory is
  // too small); or, if some fit but none meets the deadline, the fastest of them (then `fits` is true).
  std::optional<Choice> nearest;
  SearchCounts counts;
};

struct ExploreOptions {
  int keep = 10;
  // Times (or costs, or bytes) within this share of each other count as equal, and the simpler layout goes
  // first: smaller tp * pp * cp * ep, nothing in host memory, no recompute, lower stage.
  double hair = 1e-3;
  // Each point of the Pareto front needs at least this share of memory less than the one before. 0: no front,
  // which takes about as long again as the answer.
  double pareto_step = 0;
};

// UsageError: what base or a constraint has wrong, or which constraint excludes everything. Nothing that
// fits is not an error: `best` is empty and `nearest` is set.
absl::StatusOr<SearchResult> Explore(const SearchSpace& space, const Goal& goal,
                                     const ExploreOptions& options = {});

// The same by pricing every candidate: for tests and for whoever distrusts a bound.
absl::StatusOr<SearchResult> ExploreAll(const SearchSpace& space, const Goal& goal,
                                        const ExploreOptions& options = {});

}  // namespace trainctl::frameworks
