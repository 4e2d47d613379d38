// Vector clocks: for each instruction of a program, how many of each stream have completed before it.
// Internal to the checker.
#pragma once

#include <algorithm>
#include <vector>

#include "schedule/step.h"

namespace trainctl::schedule {

class HappensBefore {
 public:
  // Streams and waits are in range, waits point backwards.
  explicit HappensBefore(const Program& program) : num_streams_(program.streams.size()) {
    const size_t n = program.instructions.size();
    clocks_.assign(n * num_streams_, 0);
    streams_.resize(n);
    positions_.resize(n);
    std::vector<int> previous(num_streams_, -1), length(num_streams_, 0);
    for (size_t i = 0; i < n; ++i) {
      const Instruction& instruction = program.instructions[i];
      const size_t stream = static_cast<size_t>(instruction.stream);
      streams_[i] = stream;
      if (previous[stream] >= 0) Join(i, static_cast<size_t>(previous[stream]));
      for (int wait : instruction.waits) Join(i, static_cast<size_t>(wait));
      positions_[i] = ++length[stream];
      previous[stream] = static_cast<int>(i);
    }
  }

  bool Before(int a, int b) const {
    const size_t earlier = static_cast<size_t>(a);
    return clocks_[static_cast<size_t>(b) * num_streams_ + streams_[earlier]] >= positions_[earlier];
  }

 private:
  void Join(size_t at, size_t earlier) {
    int* clock = &clocks_[at * num_streams_];
    const int* other = &clocks_[earlier * num_streams_];
    for (size_t s = 0; s < num_streams_; ++s) clock[s] = std::max(clock[s], other[s]);
    clock[streams_[earlier]] = std::max(clock[streams_[earlier]], positions_[earlier]);
  }

  size_t num_streams_;
  std::vector<int> clocks_;  // [instruction, stream]
  std::vector<size_t> streams_;
  std::vector<int> positions_;
};

}  // namespace trainctl::schedule
