// Peak memory of a class of ranks, by playing its program: the same instructions that the executor runs.
// Counts tensor memory of one worker; not the program, its libraries or the allocator's waste. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/step.h"

namespace trainctl::simulate {

struct MemoryReport {
  int64_t peak_bytes = 0;
  // What lived at the instant of the peak; sums to peak_bytes. Index = schedule::Category.
  std::array<int64_t, schedule::kNumCategories> at_peak = {};
  int peak_instruction = -1;  // -1: the persistent values alone
  std::string peak_where;     // Describe() of that instruction
  bool operator==(const MemoryReport&) const = default;
};

// Persistent values always live. While an instruction runs, its peak_extra_bytes (activations) live
// on top of what lived before it; at its end what it writes is added and what it frees is gone.
MemoryReport SimulateMemory(const schedule::Program& program);
// The class that needs most, and what it needs.
int ClassWithMost(const schedule::Step& step);
MemoryReport SimulateMemory(const schedule::Step& step);

// The promise of a plan on a CPU, for a prediction that fits nothing: within 2 MiB of a measured peak below
// 64 MiB, within 3 % of one above.
bool MeetsPeak(int64_t predicted_bytes, int64_t measured_bytes);

// Bytes of the values that live at the instant of the peak, by what they are ("saved" for "saved 3/1"),
// largest first. They add up to peak_bytes.
struct LiveBytes {
  std::string name;
  schedule::Category category = schedule::Category::kActivations;
  int64_t bytes = 0;
};
std::vector<LiveBytes> LiveAtPeak(const schedule::Program& program, const MemoryReport& report);

}  // namespace trainctl::simulate
