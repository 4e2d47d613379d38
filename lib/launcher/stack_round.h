// Decides how and when each of a node's processes shows its stacks, as a pure state machine. First, all
// processes are asked for their stacks. Those that do not begin to respond within `patience` are read from
// /proc. Then a debugger examines the processes in the given order. Only a few debuggers run at once, because
// each occupies a core and loads LibTorch's symbols. Uses no processes or clock; the owner enforces the
// deadline. Not thread-safe.
#pragma once

#include <map>
#include <vector>

#include "absl/time/time.h"

namespace trainctl::launcher {

struct StackLimits {
  absl::Duration patience = absl::Seconds(1);        // time for a process to start responding
  absl::Duration writing = absl::Milliseconds(200);  // time for the rest of its response
  int max_debugged = 8;                              // total for the round
  int num_debuggers = 2;                             // number that may run at once; 0 if there is no debugger
};

class StackRound {
 public:
  // Requires that all `workers` were asked at time `now`.
  StackRound(absl::Duration now, std::vector<int> workers, StackLimits limits);

  // Actions for the caller to start.
  struct Orders {
    std::vector<int> read;   // workers to read from /proc; then call NoteRead
    std::vector<int> debug;  // workers to debug; then call NoteDebugged
  };
  Orders Next(absl::Duration now);

  void NoteAnswer(absl::Duration now, int worker);  // the worker has started to respond
  void NoteRead(int worker);
  void NoteDebugged(int worker);
  void NoteExit(int worker);
  bool is_over() const { return num_left_ == 0; }

 private:
  enum class State { kAsked, kAnswering, kRead, kWaiting, kDebugged, kDone };
  struct Worker {
    State state = State::kAsked;
    absl::Duration until;  // deadline for kAsked and kAnswering
  };
  void Finish(Worker& worker);
  // Returns null if the worker is not part of this round.
  Worker* Find(int worker);

  const std::vector<int> order_;
  const StackLimits limits_;
  std::map<int, Worker> workers_;
  size_t num_left_ = 0;
  int num_debuggers_ = 0;  // running now
  int num_debugged_ = 0;   // total so far
};

}  // namespace trainctl::launcher
