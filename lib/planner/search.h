// The search for the layout of our own trainer, over all axes at once: the mesh, the ZeRO stage, the order
// and virtual stages of a pipeline, the micro-batch and what is recomputed. Every combination gets lower
// bounds of its time and memory. Starting with the lowest bound, what may be chosen is simulated; the rest is
// pruned. Internal to the planner. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/layout.h"
#include "plan/plan.h"
#include "simulate/cost.h"

namespace trainctl::planner {

// A recipe with everything resolved but the layout.
struct Problem {
  layout::Request request;  // without violations
  schedule::StepSetting setting;
  int64_t memory_limit_bytes = 0;
  // The limit is what a machine has, divided by its workers: with more of them each has less.
  bool limit_is_shared = false;
  simulate::Rates rates;
};

// Program, libraries and buffers of one worker outside its tensors.
inline constexpr int64_t kWorkerOverheadBytes = int64_t{512} << 20;

// The passes that only save time: without any of them the same layout is chosen. Tests switch them off.
struct SearchPasses {
  bool prune_memory = true;  // layouts whose bound does not fit are not simulated
  bool prune_time = true;    // nor are those whose bound is slower than what was found
  bool fold = true;          // estimates come from steps with few layers, not from whole ones
  bool halve = true;         // how many layers must be recomputed is found by halving, not one by one
};

enum class Wanted {
  kFamilies,  // the chosen layout, and of each family the best or, if none fits, the smallest
  kChoice,    // the chosen layout
};

struct Found {
  // Every layout that was simulated, those with the lowest bound first. With full recomputation, as few
  // layers as fit are recomputed unless the recipe states their number.
  std::vector<plan::Candidate> candidates;
  int chosen = -1;  // -1 if nothing fits
  plan::SearchCounts counts;
};

Found Search(const Problem& problem, Wanted wanted, const SearchPasses& passes = {});

// The strategies that the recipe rules out, as the chosen layout's micro-batch and recompute would make
// them, for comparison: the reason names the setting.
std::vector<plan::Candidate> RuledOut(const Problem& problem, const layout::Layout& chosen);

}  // namespace trainctl::planner
