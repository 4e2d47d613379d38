#include "planner/memory.h"

#include <numeric>

namespace trainctl::planner {

MemoryReport SimulateMemory(const schedule::Schedule& schedule) {
  std::array<int64_t, schedule::kNumCategories> live = {};
  const auto count = [&](int value, int64_t sign) {
    const schedule::Value& v = schedule.values[static_cast<size_t>(value)];
    if (!v.persistent) live[static_cast<size_t>(v.category)] += sign * v.bytes;
  };
  for (const schedule::Value& value : schedule.values) {
    if (value.persistent) live[static_cast<size_t>(value.category)] += value.bytes;
  }
  MemoryReport report;
  const auto observe = [&](int index, int64_t extra_bytes) {
    const int64_t total = std::accumulate(live.begin(), live.end(), extra_bytes);
    if (total <= report.peak_bytes) return;
    report.peak_bytes = total;
    report.at_peak = live;
    report.at_peak[static_cast<size_t>(schedule::Category::kActivations)] += extra_bytes;
    report.peak_instruction = index;
  };
  observe(-1, 0);
  for (size_t i = 0; i < schedule.instructions.size(); ++i) {
    const schedule::Instruction& instruction = schedule.instructions[i];
    const int index = static_cast<int>(i);
    if (instruction.peak_extra_bytes > 0) observe(index, instruction.peak_extra_bytes);
    for (int value : instruction.writes) count(value, 1);
    for (int value : instruction.frees) count(value, -1);
    if (!instruction.writes.empty()) observe(index, 0);
  }
  if (report.peak_instruction >= 0) {
    report.peak_where =
        schedule::Describe(schedule.instructions[static_cast<size_t>(report.peak_instruction)]);
  }
  return report;
}

}  // namespace trainctl::planner
