#include "simulate/memory.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "simulate/live_memory.h"

namespace trainctl::simulate {

MemoryReport SimulateMemory(const schedule::Program& program) {
  LiveMemory live(program);
  PeakFinder peak;
  peak.Observe(-1, live.bytes());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const schedule::Instruction& instruction = program.instructions[i];
    const int index = static_cast<int>(i);
    if (instruction.peak_extra_bytes > 0) peak.Observe(index, live.During(instruction));
    live.Finish(instruction);
    if (!instruction.writes.empty()) peak.Observe(index, live.bytes());
  }
  MemoryReport report = peak.report();
  if (report.peak_instruction >= 0) {
    report.peak_where =
        schedule::Describe(program.instructions[static_cast<size_t>(report.peak_instruction)]);
  }
  return report;
}

int ClassWithMost(const schedule::Step& step) {
  int with_most = 0;
  int64_t most = -1;
  for (size_t c = 0; c < step.programs.size(); ++c) {
    const int64_t peak_bytes = SimulateMemory(step.programs[c]).peak_bytes;
    if (peak_bytes <= most) continue;
    most = peak_bytes;
    with_most = static_cast<int>(c);
  }
  return with_most;
}

MemoryReport SimulateMemory(const schedule::Step& step) {
  return SimulateMemory(step.programs[static_cast<size_t>(ClassWithMost(step))]);
}

bool MeetsPeak(int64_t predicted_bytes, int64_t measured_bytes) {
  constexpr int64_t kSmallPeakBytes = int64_t{64} << 20;
  constexpr int64_t kSmallSlackBytes = int64_t{2} << 20;
  constexpr double kShare = 0.03;
  const int64_t off = std::abs(predicted_bytes - measured_bytes);
  if (measured_bytes < kSmallPeakBytes) return off <= kSmallSlackBytes;
  return static_cast<double>(off) <= kShare * static_cast<double>(measured_bytes);
}

std::vector<LiveBytes> LiveAtPeak(const schedule::Program& program, const MemoryReport& report) {
  std::vector<bool> lives;
  for (const schedule::Value& value : program.values) lives.push_back(value.persistent);
  int64_t extra_bytes = 0;
  const auto sum = [&] {
    int64_t bytes = 0;
    for (size_t v = 0; v < lives.size(); ++v) bytes += lives[v] ? program.values[v].bytes : 0;
    return bytes;
  };
  for (int i = 0; i <= report.peak_instruction; ++i) {
    const schedule::Instruction& instruction = program.instructions[static_cast<size_t>(i)];
    const bool is_peak = i == report.peak_instruction;
    if (is_peak && sum() + instruction.peak_extra_bytes == report.peak_bytes) {
      extra_bytes = instruction.peak_extra_bytes;
      break;
    }
    for (int value : instruction.writes) lives[static_cast<size_t>(value)] = true;
    for (int value : instruction.frees) lives[static_cast<size_t>(value)] = false;
  }
  std::map<std::pair<std::string, schedule::Category>, int64_t> by_name;
  for (size_t v = 0; v < lives.size(); ++v) {
    const schedule::Value& value = program.values[v];
    if (lives[v]) by_name[{std::string(schedule::ValueKindName(value.kind)), value.category}] += value.bytes;
  }
  if (extra_bytes > 0)
    by_name[{"work of the instruction at the peak", schedule::Category::kActivations}] += extra_bytes;
  std::vector<LiveBytes> list;
  for (const auto& [key, bytes] : by_name) list.push_back({key.first, key.second, bytes});
  std::stable_sort(list.begin(), list.end(),
                   [](const LiveBytes& a, const LiveBytes& b) { return a.bytes > b.bytes; });
  return list;
}

}  // namespace trainctl::simulate
