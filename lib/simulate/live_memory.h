// Internal to the simulator: counts the allocated bytes by category while the instructions of a program are
// played in list order. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

#include "schedule/step.h"
#include "simulate/memory.h"

namespace trainctl::simulate {

// The memory of one class between two instructions.
class LiveMemory {
 public:
  using Bytes = std::array<int64_t, schedule::kNumCategories>;

  // Starts before the first instruction, with only the persistent values. `program` must outlive this object.
  explicit LiveMemory(const schedule::Program& program) : program_(program) {
    for (const schedule::Value& value : program.values) {
      if (value.persistent) bytes_[static_cast<size_t>(value.category)] += value.bytes;
    }
  }

  const Bytes& bytes() const { return bytes_; }

  // Returns the bytes while `instruction` runs, including its temporaries, which count as activations.
  Bytes During(const schedule::Instruction& instruction) const {
    Bytes bytes = bytes_;
    bytes[static_cast<size_t>(schedule::Category::kActivations)] += instruction.peak_extra_bytes;
    return bytes;
  }

  // Adds the values that `instruction` writes and removes those that it frees, as happens at its end.
  void Finish(const schedule::Instruction& instruction) {
    for (int value : instruction.writes) Count(value, 1);
    for (int value : instruction.frees) Count(value, -1);
  }

 private:
  void Count(int value, int64_t sign) {
    const schedule::Value& v = program_.values[static_cast<size_t>(value)];
    if (!v.persistent) bytes_[static_cast<size_t>(v.category)] += sign * v.bytes;
  }

  const schedule::Program& program_;
  Bytes bytes_ = {};
};

// Finds the peak among observations that are made in order. The first one counts if several are equal.
class PeakFinder {
 public:
  // `index` is the instruction's position, or -1 before the first instruction.
  void Observe(int index, const LiveMemory::Bytes& bytes) {
    const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    if (total <= report_.peak_bytes) return;
    report_.peak_bytes = total;
    report_.at_peak = bytes;
    report_.peak_instruction = index;
  }
  const MemoryReport& report() const { return report_; }

 private:
  MemoryReport report_;
};

}  // namespace trainctl::simulate
