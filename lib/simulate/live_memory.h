// The bytes that live while a step is played, by category. Internal to the simulator.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

#include "schedule/step.h"
#include "simulate/memory.h"

namespace trainctl::simulate {

class LiveMemory {
 public:
  using Bytes = std::array<int64_t, schedule::kNumCategories>;

  // Before the first instruction: the persistent values.
  explicit LiveMemory(const schedule::Program& program) : program_(program) {
    for (const schedule::Value& value : program.values) {
      if (value.persistent) bytes_[static_cast<size_t>(value.category)] += value.bytes;
    }
  }

  const Bytes& bytes() const { return bytes_; }

  // While `instruction` runs.
  Bytes During(const schedule::Instruction& instruction) const {
    Bytes bytes = bytes_;
    bytes[static_cast<size_t>(schedule::Category::kActivations)] += instruction.peak_extra_bytes;
    return bytes;
  }

  // At its end what it writes is there and what it frees is gone.
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

// The first of the highest instants, of those observed in order.
class PeakFinder {
 public:
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
