// The agent of one node as a pure state machine: what happens to the node's processes, in each attempt.
// No processes, no clock, no threads: the caller hands in the time and the event, and carries out the
// actions, in order. Not thread safe.
//
//   idle ──StartWorkers──▶ running ──EndWorkers──▶ ending ──nothing left──▶ idle
//
// Whatever happens, an attempt that was started ends with NodeEnded: a worker that ignores SIGTERM gets
// SIGKILL after the grace, one that has done its work but does not end gets it after stop_timeout, and a
// keeper that does not say that all is gone, or that one that was killed has ended, gets it after
// keeper_patience, which ends its workers with it. ShowStacks is answered within stacks_timeout.
//
// Commands come over the network: one that names a worker that is not there is ignored, and an attempt that
// begins before the last has ended is told to have failed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/subprocess.h"
#include "rendezvous/node.h"

namespace trainctl::rendezvous {

struct AgentOptions {
  absl::Duration stop_timeout = absl::Seconds(30);
  absl::Duration keeper_patience = absl::Seconds(15);  // it tells of what it cannot end long before
  absl::Duration stacks_timeout = absl::Seconds(15);   // Timeouts::stacks
};

// ---- events -------------------------------------------------------------------------------------
struct ProcessNotStarted {
  absl::Status why;
};
struct ProcessExited {
  int worker = -1;
  ExitStatus exit;
  Progress last{-1, ""};    // of its board
  std::string killed_note;  // of SIGKILL: whose it may be ("..., for lack of memory")
  bool waited = false;      // by its board, for others
};
// It was killed long ago and does not end: it hangs in the kernel.
struct ProcessStuck {
  pid_t pid = 0;
  int worker = -1;  // -1: none of the workers
};
struct ProcessesGone {};  // after KillProcesses
struct KeeperLost {};     // and with it all processes
struct StacksTaken {};    // after TakeStacks
struct ActivityFound {
  int worker = -1;
  Activity activity = Activity::kBusy;
};
struct AgentTick {};

using AgentEvent = std::variant<NodeCommand, ProcessNotStarted, ProcessExited, ProcessStuck, ProcessesGone,
                                KeeperLost, StacksTaken, ActivityFound, AgentTick>;

// ---- actions ------------------------------------------------------------------------------------
struct SpawnWorkers {
  int first_rank = 0;
  std::vector<Slot> slots;
};
struct SignalWorker {  // and its process group
  int worker = -1;
  int signal_number = 0;
};
// Into their logs, in this order where not all can be taken at once. StacksTaken follows.
struct TakeStacks {
  std::vector<int> workers;
  int hung = -1;  // what this one says of itself is shown to the person, too
};
struct DropStacks {};  // it has taken too long
struct LookForActivity {
  int worker = -1;
};
struct KillProcesses {};  // all, and what they started
struct KillKeeper {};
struct KillOrphans {};  // what a lost keeper has left
// Nothing is left of the attempt: read what is left of its output, then tell NodeEnded.
struct FinishAttempt {
  int64_t attempt = 0;
  int tail_of = -1;
  bool keeper_lost = false;
};
struct Tell {
  NodeEvent event;
};

using AgentAction = std::variant<SpawnWorkers, SignalWorker, TakeStacks, DropStacks, LookForActivity,
                                 KillProcesses, KillKeeper, KillOrphans, FinishAttempt, Tell>;

class Agent {
 public:
  explicit Agent(AgentOptions options) : options_(options) {}

  std::vector<AgentAction> Decide(absl::Duration now, const AgentEvent& event);

  int64_t attempt() const { return attempt_; }
  bool is_idle() const { return phase_ == Phase::kIdle; }
  // Whether the worker that the command is for is there.
  bool NamesOwnWorker(const NodeCommand& command) const;
  // When a Tick has something to do at the latest.
  absl::Duration next_deadline() const;

 private:
  enum class Phase { kIdle, kRunning, kEnding };
  struct Worker {
    std::string member;
    int rank = -1;
    bool exited = false;
    std::optional<absl::Duration> left;  // until when it may take to end
  };
  using Actions = std::vector<AgentAction>;

  void On(absl::Duration now, const NodeCommand& command, Actions& out);
  void On(absl::Duration now, const ProcessNotStarted& event, Actions& out);
  void On(absl::Duration now, const ProcessExited& event, Actions& out);
  void On(absl::Duration now, const ProcessStuck& event, Actions& out);
  void On(absl::Duration now, const ProcessesGone& event, Actions& out);
  void On(absl::Duration now, const KeeperLost& event, Actions& out);
  void On(absl::Duration now, const StacksTaken& event, Actions& out);
  void On(absl::Duration now, const ActivityFound& event, Actions& out);
  void On(absl::Duration now, const AgentTick& event, Actions& out);

  void Do(absl::Duration now, const StartWorkers& command, Actions& out);
  void Do(absl::Duration now, const EndWorkers& command, Actions& out);
  void Do(absl::Duration now, const NoteLeft& command, Actions& out);
  void Do(absl::Duration now, const ShowStacks& command, Actions& out);
  void Do(absl::Duration now, const FindActivity& command, Actions& out);

  void EndStacks(Actions& out);
  void TellCoordinator(decltype(NodeEvent::what) what, Actions& out) const;
  void KillAll(absl::Duration now, Actions& out);
  void Finish(Actions& out);
  // "rank 3"
  std::string NameOf(int worker) const;
  bool AllExited() const;
  // It has left, was given its time and killed, and nobody has told of its end.
  static bool IsOverdue(const Worker& worker);
  // All have left or ended.
  bool IsWorkDone() const;

  const AgentOptions options_;
  Phase phase_ = Phase::kIdle;
  int64_t attempt_ = 0;
  std::vector<Worker> workers_;
  bool is_killing_ = false;  // SIGKILL was sent to all
  bool keeper_lost_ = false;
  bool is_alone_ = false;  // the keeper was lost when all work was done
  int tail_of_ = -1;
  int hung_ = -1;                                              // the worker that hangs
  absl::Duration stacks_deadline_ = absl::InfiniteDuration();  // while stacks are taken
  absl::Duration kill_deadline_ = absl::InfiniteDuration();
  absl::Duration keeper_deadline_ = absl::InfiniteDuration();
};

}  // namespace trainctl::rendezvous
