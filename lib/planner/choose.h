// Which of the candidates is taken, and why the others are not. Internal to the planner. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "simulate/memory.h"

namespace trainctl::planner {

// Two estimates closer than this are the same.
inline constexpr double kSameTime = 1.03;

// Prices of layouts that cut the model, with exchanges in every layer, are less sure than those of one that
// does not: what they save at least.
inline constexpr double kWorthCutting = 1.1;

// The model cut in few parts before many, 1F1B before other orders, little recompute before much, then the
// lowest stage. Of two layouts the one with the lower key is simpler, whatever they need.
using LayoutKey = std::tuple<int64_t, std::pair<int, int64_t>, layout::Recompute, int>;
LayoutKey KeyOf(const layout::Layout& layout);
// By their keys, then few recomputed layers before many, then the least memory.
bool Simpler(const plan::Candidate& a, const plan::Candidate& b);

// Marks the chosen candidate, the simplest of those within kSameTime of the fastest that fits, and writes
// every reason. Those that cut the model in more than `asked_parts` take part if they are worth it beside
// those that do not. `is_asked`: all are of the one strategy that the recipe allows. Returns its index, -1
// when nothing fits.
int Choose(int64_t memory_limit_bytes, int64_t asked_parts, bool is_asked,
           std::vector<plan::Candidate>& candidates);

// "needs 3.10 GiB of 2.00 GiB: optimizer 1.20 GiB, ..."
std::string WhyNotFits(const simulate::MemoryReport& memory, int64_t limit_bytes);

}  // namespace trainctl::planner
