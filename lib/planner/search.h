// Internal to the planner: searches for the best layout for trainctl's trainer. The search covers all axes at
// the same time: the mesh, the ZeRO stage, the order and virtual stages of a pipeline, the micro-batch, and
// the recomputation. It computes lower bounds of the time and memory of every combination. In ascending order
// of the time bounds, it then simulates the combinations that may still be chosen, and prunes the others.
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/layout.h"
#include "plan/plan.h"
#include "simulate/cost.h"

namespace trainctl::planner {

// A recipe in which everything except the layout is resolved.
struct Problem {
  layout::Request request;  // must not have violations (layout::FindViolations)
  schedule::StepSetting setting;
  int64_t memory_limit_bytes = 0;  // tensor memory per worker
  // Whether the limit is a machine's memory divided by its workers. With more workers, each then has less.
  bool limit_is_shared = false;
  simulate::Rates rates;
};

// Memory of one worker other than tensors: its program, libraries and buffers.
inline constexpr int64_t kWorkerOverheadBytes = int64_t{512} << 20;

// Passes of the search that only save time. The search chooses the same layout without them, and tests turn
// them off to check this.
struct SearchPasses {
  bool prune_memory = true;  // do not simulate layouts whose memory bound does not fit
  bool prune_time = true;    // do not simulate layouts whose time bound shows that a known layout is better
  bool fold = true;          // estimate from steps with few layers instead of whole steps (simulate/fold.h)
  bool halve = true;         // bisect the number of recomputed layers instead of counting up
};

// The layouts that the caller needs.
enum class Wanted {
  kFamilies,  // the chosen layout and the best of each family (if none fits, the one that needs least memory)
  kChoice,    // only the chosen layout
};

struct Found {
  // All layouts for which a step was simulated, in the order of the search. With full recomputation, only as
  // many layers are recomputed as needed to fit, unless the recipe states the recomputation or the number of
  // layers.
  std::vector<plan::Candidate> candidates;
  int chosen = -1;  // index into `candidates`; -1 if none fits
  plan::SearchCounts counts;
};

// Returns the layouts that `wanted` asks for, and any others that were simulated on the way. With kFamilies,
// `candidates` is empty only if the pipeline's order does not support the number of micro-batches of any
// layout.
Found Search(const Problem& problem, Wanted wanted, const SearchPasses& passes = {});

// Returns, for comparison, the strategies that the recipe excludes. Each has the chosen layout's pipeline,
// tensor parallelism, micro-batch and recomputation. The candidate's `reason` names the setting that excludes
// it.
std::vector<plan::Candidate> RuledOut(const Problem& problem, const layout::Layout& chosen);

}  // namespace trainctl::planner
