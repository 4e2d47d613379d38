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

// Plans whose estimates differ by less than this factor count as equally fast.
inline constexpr double kSameTime = 1.01;

// Share of the memory limit above which little room is left for uncounted memory, such as fragmentation.
inline constexpr double kRoomyShare = 0.9;
inline bool IsTight(int64_t peak_bytes, int64_t limit_bytes) {
  return static_cast<double>(peak_bytes) > kRoomyShare * static_cast<double>(limit_bytes);
}

// Breaks ties between equally fast layouts; the lowest key wins. It compares, in this order: a tenth of the
// memory free, few axes of parallelism, a model cut in few parts, 1F1B before other pipeline orders, a low
// ZeRO stage, little recomputation.
using LayoutKey = std::tuple<bool, int, int64_t, std::pair<int, int64_t>, int, layout::Recompute>;
LayoutKey KeyOf(const layout::Layout& layout, bool is_tight);

// Marks the chosen candidate and writes every reason. The chosen one is the fastest that fits or, of those
// that are equally fast, the one with the lowest key. `is_asked` says that the recipe allows one strategy
// only. Returns the index of the chosen candidate, or -1 if nothing fits.
int Choose(int64_t memory_limit_bytes, bool is_asked, std::vector<plan::Candidate>& candidates);

// "needs 3.10 GiB of 2.00 GiB: optimizer 1.20 GiB, ..."
std::string WhyNotFits(const simulate::MemoryReport& memory, int64_t limit_bytes);

}  // namespace trainctl::planner
