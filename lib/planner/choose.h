// Internal to the planner: chooses one of the candidates and explains why the others are rejected. Pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "simulate/memory.h"

namespace trainctl::planner {

// Layouts count as equally fast if their estimated times differ by at most this factor.
inline constexpr double kSameTime = 1.01;

// Share of the memory limit above which a layout leaves too little room for memory that is not counted, such
// as fragmentation.
inline constexpr double kRoomyShare = 0.9;
inline bool IsTight(int64_t peak_bytes, int64_t limit_bytes) {
  return static_cast<double>(peak_bytes) > kRoomyShare * static_cast<double>(limit_bytes);
}

// Breaks ties between equally fast layouts. The layout with the lowest key wins. The elements, in order of
// priority, prefer: at least a tenth of the memory free, fewer axes of parallelism, fewer parts of the model
// (pp * tp), 1F1B over other pipeline orders, a lower ZeRO stage, and less recomputation.
using LayoutKey = std::tuple<bool, int, int64_t, std::pair<int, int64_t>, int, layout::Recompute>;
LayoutKey KeyOf(const layout::Layout& layout, bool is_tight);

// Marks the chosen candidate and sets the `reason` of every candidate. The chosen one is the fastest that
// fits. If several are equally fast, it is the one with the lowest key. `is_asked` is true if the recipe
// leaves no choice; the reason then says so. Returns the index of the chosen candidate, or -1 if none fits.
int Choose(int64_t memory_limit_bytes, bool is_asked, std::vector<plan::Candidate>& candidates);

// Explains why a layout does not fit: "needs 3.10 GiB of 2.00 GiB: optimizer 1.20 GiB, ...". Omits categories
// with less than 5 % of the peak.
std::string WhyNotFits(const simulate::MemoryReport& memory, int64_t limit_bytes);

}  // namespace trainctl::planner
