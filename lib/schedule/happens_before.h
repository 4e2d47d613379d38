// Internal to the checker: the happens-before relation of a program's instructions, computed with vector
// clocks. For each instruction, they count how many instructions of each stream have completed before it
// starts.
#pragma once

#include <algorithm>
#include <vector>

#include "schedule/step.h"

namespace trainctl::schedule {

class HappensBefore {
 public:
  // The streams and waits of all instructions must be in range, and waits must refer to earlier instructions.
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

  // Whether instruction `a` has always completed when instruction `b` starts, at any speed of the streams.
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
  std::vector<int> clocks_;      // [instruction, stream]
  std::vector<size_t> streams_;  // [instruction]
  std::vector<int> positions_;   // [instruction], number within its stream, from 1
};

}  // namespace trainctl::schedule
