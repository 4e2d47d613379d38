// Which of the candidates is taken, and why the others are not. Internal to the planner. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "simulate/memory.h"

namespace trainctl::planner {

// Two estimates closer than this are the same.
inline constexpr double kSameTime = 1.03;

// Little recompute before much, then the lowest stage, then the least memory.
bool Simpler(const plan::Candidate& a, const plan::Candidate& b);

// Marks the chosen candidate, the simplest of those within kSameTime of the fastest that fits, and writes
// every reason. Returns its index, -1 when nothing fits.
int Choose(int64_t memory_limit_bytes, std::vector<plan::Candidate>& candidates);

// "needs 3.10 GiB of 2.00 GiB: optimizer 1.20 GiB, ..."
std::string WhyNotFits(const simulate::MemoryReport& memory, int64_t limit_bytes);

}  // namespace trainctl::planner
