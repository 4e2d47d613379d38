// Predicts the peak memory of a class of ranks by playing its program, which has the same instructions that
// the executor runs. Counts the tensor memory of one worker. Does not count the memory of the program and its
// libraries, or memory that the allocator wastes. Pure functions; thread-safe.
//
//   MemoryReport report = SimulateMemory(step);
//   bool fits = report.peak_bytes <= limit_bytes;
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/step.h"

namespace trainctl::simulate {

struct MemoryReport {
  int64_t peak_bytes = 0;
  // Allocated bytes at the peak, by schedule::Category. The sum is peak_bytes.
  std::array<int64_t, schedule::kNumCategories> at_peak = {};
  int peak_instruction = -1;  // position in the program; -1 if the peak is before the first instruction
  std::string peak_where;     // Describe() of that instruction; empty if there is none
  bool operator==(const MemoryReport&) const = default;
};

// Returns the peak memory of a program. Persistent values are always allocated. While an instruction runs,
// its peak_extra_bytes are allocated in addition, and count as activations. At its end, the values that it
// writes are added and those that it frees are removed.
MemoryReport SimulateMemory(const schedule::Program& program);
// Returns the class with the highest peak memory. If several are equal, returns the first of them.
int ClassWithMost(const schedule::Step& step);
// Returns the report of that class.
MemoryReport SimulateMemory(const schedule::Step& step);

// Returns whether a prediction is as accurate as plans promise on a CPU, without any fitting to measurements:
// within 2 MiB if the measured peak is below 64 MiB, and within 3 % of the measured peak otherwise.
bool MeetsPeak(int64_t predicted_bytes, int64_t measured_bytes);

// Bytes of the values of one kind at the peak. The name is that of the kind, such as "saved" for the value
// "saved 3/1".
struct LiveBytes {
  std::string name;
  schedule::Category category = schedule::Category::kActivations;
  int64_t bytes = 0;
};
// Returns the bytes at the peak, largest first. The sum is peak_bytes. `report` must be the result of
// SimulateMemory for `program`. The temporaries of the instruction at the peak are one entry.
std::vector<LiveBytes> LiveAtPeak(const schedule::Program& program, const MemoryReport& report);

}  // namespace trainctl::simulate
