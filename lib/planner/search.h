// Enumerates and weighs the layouts of a data-parallel step. Internal to the planner. Pure.
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

// Every strategy (mesh and stage) that the problem allows, in the order DDP, ZeRO-1, 2, 3 and of
// growing dp_shard, each with the variants (micro-batch, recompute) that were worth looking at: the
// smallest one alone where that does not fit. Nothing is chosen yet.
std::vector<plan::Candidate> Weigh(const Problem& problem);

// Marks the chosen candidate and writes every reason. Among those within 3 % of the fastest: no
// recompute before recompute, then the lowest stage, then the least memory. Returns its index, -1
// when nothing fits.
int Choose(const Problem& problem, std::vector<plan::Candidate>& candidates);

// The strategies that the recipe rules out, as the chosen layout's micro-batch and recompute would make
// them, for comparison: the reason names the setting.
std::vector<plan::Candidate> RuledOut(const Problem& problem, const layout::Layout& chosen);

// "needs 3.10 GiB of 2.00 GiB: optimizer 1.20 GiB, ..."
std::string WhyNotFits(const simulate::MemoryReport& memory, int64_t limit_bytes);

// The nearest recipe that fits, as text for an error; changes the fewest constraints first.
std::string NearestThatFits(const Problem& problem);

}  // namespace trainctl::planner
