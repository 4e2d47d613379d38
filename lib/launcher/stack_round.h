// Which of a node's processes shows its stacks in which way, and when, as a pure state machine. Each is asked
// at first; what begins no answer within `patience` is read from /proc; then a debugger looks at each, in the
// order given and a few at a time, as each takes a core and the symbols of LibTorch. No processes, no clock;
// not thread safe. Its owner has the deadline.
#pragma once

#include <map>
#include <vector>

#include "absl/time/time.h"

namespace trainctl::launcher {

struct StackLimits {
  absl::Duration patience = absl::Seconds(1);        // for a process to begin to answer
  absl::Duration writing = absl::Milliseconds(200);  // for the rest of its answer
  int max_debugged = 8;                              // in all
  int num_debuggers = 2;                             // at a time; 0: there is no debugger here
};

class StackRound {
 public:
  // All `workers` have been asked at `now`.
  StackRound(absl::Duration now, std::vector<int> workers, StackLimits limits);

  // What is to be begun.
  struct Orders {
    std::vector<int> read;   // from /proc; NoteRead follows
    std::vector<int> debug;  // NoteDebugged follows
  };
  Orders Next(absl::Duration now);

  void NoteAnswer(absl::Duration now, int worker);  // it has begun to
  void NoteRead(int worker);
  void NoteDebugged(int worker);
  void NoteExit(int worker);
  bool is_over() const { return num_left_ == 0; }

 private:
  enum class State { kAsked, kAnswering, kRead, kWaiting, kDebugged, kDone };
  struct Worker {
    State state = State::kAsked;
    absl::Duration until;  // kAsked, kAnswering
  };
  void Finish(Worker& worker);
  // Null: of none of this round.
  Worker* Find(int worker);

  const std::vector<int> order_;
  const StackLimits limits_;
  std::map<int, Worker> workers_;
  size_t num_left_ = 0;
  int num_debuggers_ = 0;  // now
  int num_debugged_ = 0;   // so far
};

}  // namespace trainctl::launcher
