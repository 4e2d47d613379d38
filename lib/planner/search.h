// The search for the layout of our own trainer: enumerate, bound, prune, fold, play, choose. Internal to the
// planner. Pure.
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
  bool prune_memory = true;  // what does not fit by its bound is not priced
  bool prune_time = true;    // nor what is slower by its bound than what was found
  bool fold = true;          // prices come from steps with few layers, not from whole ones
  bool play = true;          // the steps of those that may be chosen are built whole and played
  bool halve = true;         // how many layers must be recomputed is found by halving, not one by one
};

// Candidates that the last pass plays, the simplest of those that may be chosen.
inline constexpr int kMaxPlayed = 32;

// What each pass had to do.
struct SearchCounts {
  int64_t enumerated = 0;  // strategies
  int64_t bounded = 0;     // layouts
  int64_t pruned = 0;
  int64_t folded = 0;
  int64_t whole = 0;  // priced from whole steps where folding is off or does not work
  int64_t played = 0;
  int64_t tried = 0;  // numbers of recomputed layers, to find the least that fit
};

enum class Wanted {
  kAll,     // every candidate with its numbers and its reason: nothing is pruned
  kChoice,  // the chosen one; among the others those that had to be priced
};

struct Found {
  // Every strategy (mesh and stage) that the problem allows, in the order DDP, ZeRO-1, 2, 3 and of growing
  // dp_shard, each with the variants (micro-batch, recompute) that were worth looking at: the smallest one
  // alone where that does not fit. Full recompute is of as few layers as fit, where their number is free.
  std::vector<plan::Candidate> candidates;
  int chosen = -1;  // -1: nothing fits
  SearchCounts counts;
};

Found Search(const Problem& problem, Wanted wanted, const SearchPasses& passes = {});

// The strategies that the recipe rules out, as the chosen layout's micro-batch and recompute would make
// them, for comparison: the reason names the setting.
std::vector<plan::Candidate> RuledOut(const Problem& problem, const layout::Layout& chosen);

}  // namespace trainctl::planner
