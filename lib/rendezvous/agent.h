// A node's agent as a pure state machine, which decides what happens to the node's processes in each attempt.
// It owns no processes, clocks or threads: the caller passes in the time and an event, and executes the
// returned actions in order. Not thread-safe.
//
//   idle ──StartWorkers──▶ running ──EndWorkers──▶ ending ──nothing left──▶ idle
//
// Every attempt that starts also ends with NodeEnded. A worker gets SIGKILL if it ignores SIGTERM for the
// grace period, or if it has finished its work but does not exit within stop_timeout. The keeper itself gets
// SIGKILL, which also ends its workers, if it does not report within keeper_patience that the killed
// processes have ended. ShowStacks is answered within stacks_timeout.
//
// Commands arrive over the network and are not trusted. A command that names an unknown worker is ignored,
// and an attempt that begins before the previous one has ended is reported as failed.
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
  // How long the keeper may stay silent before it is killed. A working keeper reports unkillable processes
  // long before this.
  absl::Duration keeper_patience = absl::Seconds(15);
  absl::Duration stacks_timeout = absl::Seconds(15);  // must match Timeouts::stacks
};

// ---- events -------------------------------------------------------------------------------------
struct ProcessNotStarted {
  absl::Status why;
};
struct ProcessExited {
  int worker = -1;
  ExitStatus exit;
  Progress last{-1, ""};  // progress last shown on its board
  // Possible origin of a SIGKILL, appended to the description ("..., for lack of memory").
  std::string killed_note;
  // Whether its board says that it was waiting for other ranks.
  bool waited = false;
};
// A process was killed long ago but has not ended, because it is hung in the kernel.
struct ProcessStuck {
  pid_t pid = 0;
  int worker = -1;  // -1 if the process is not a worker
};
struct ProcessesGone {};  // reply to KillProcesses
struct KeeperLost {};     // the keeper has died, and all of its processes with it
struct StacksTaken {};    // reply to TakeStacks
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
struct SignalWorker {  // signals its whole process group
  int worker = -1;
  int signal_number = 0;
};
// Write the workers' stacks to their logs. If they cannot all be taken at once, they are taken in this order.
// StacksTaken follows.
struct TakeStacks {
  std::vector<int> workers;
  int hung = -1;  // hung worker, whose stacks are also shown to the user; -1 for none
};
struct DropStacks {};  // give up on stacks that take too long
struct LookForActivity {
  int worker = -1;
};
struct KillProcesses {};  // kills all processes and their descendants
struct KillKeeper {};
struct KillOrphans {};  // kills the processes that a lost keeper left behind
// All processes of the attempt have ended. Read the rest of their output, then send NodeEnded.
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
  // Whether every worker that the command names exists on this node.
  bool NamesOwnWorker(const NodeCommand& command) const;
  // The time by which the next AgentTick must be submitted.
  absl::Duration next_deadline() const;

 private:
  enum class Phase { kIdle, kRunning, kEnding };
  struct Worker {
    std::string member;
    int rank = -1;
    bool exited = false;
    std::optional<absl::Duration> left;  // deadline for exiting, once its work is done
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
  // Returns the worker's name in messages, for example "rank 3".
  std::string NameOf(int worker) const;
  bool AllExited() const;
  // Whether the worker was killed because it did not exit after finishing its work, and the keeper has not
  // yet reported its exit.
  static bool IsOverdue(const Worker& worker);
  // Whether every worker has finished its work or exited.
  bool IsWorkDone() const;

  const AgentOptions options_;
  Phase phase_ = Phase::kIdle;
  int64_t attempt_ = 0;
  std::vector<Worker> workers_;
  bool is_killing_ = false;  // whether SIGKILL was sent to all processes
  bool keeper_lost_ = false;
  bool is_alone_ = false;  // whether the keeper was lost after all work was done
  int tail_of_ = -1;
  int hung_ = -1;                                              // the hung worker; -1 for none
  absl::Duration stacks_deadline_ = absl::InfiniteDuration();  // finite while stacks are being taken
  absl::Duration kill_deadline_ = absl::InfiniteDuration();
  absl::Duration keeper_deadline_ = absl::InfiniteDuration();
};

}  // namespace trainctl::rendezvous
