// Carries out the decisions of a node's agent: starts workers on this machine, ends them and every process
// they started, keeps their logs, and reports to the coordinator. Driven by the caller's poll(2) loop; no
// call blocks. Not thread-safe. Must be used from a thread that lives as long as the process, such as the
// main thread, because the workers are killed when that thread exits.
#pragma once

#include <poll.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "launcher/disk_queue.h"
#include "launcher/oom_counter.h"
#include "launcher/orphans.h"
#include "launcher/process_probe.h"
#include "launcher/stack_dump.h"
#include "launcher/stack_round.h"
#include "launcher/thread_states.h"
#include "launcher/worker_set.h"
#include "rendezvous/agent.h"

namespace trainctl::launcher {

class NodeHost {
 public:
  struct Deps {
    const Clock& clock;
    DiskQueue& disk;  // used for logs
    Orphans& orphans;
    std::function<void(rendezvous::NodeEvent event)> tell;  // reports an event to the coordinator
    WorkerSet::LineSink show_line;
  };

  NodeHost(WorkerStart start, rendezvous::AgentOptions options, Deps deps);

  // Handles a command from the coordinator.
  void Handle(rendezvous::NodeCommand command);

  void AddPollFds(std::vector<pollfd>& fds) const;
  // Reads output, sends reports, and ends processes as they become due. Call this after poll(2).
  void Advance();
  // Returns the timeout for poll(2): the time in ms until Advance has work to do, but at most `most`.
  int PollMs(absl::Duration most) const;
  // Whether no processes of an attempt are left.
  bool is_idle() const { return agent_.is_idle(); }

 private:
  void Decide(rendezvous::AgentEvent event);
  void Do(const rendezvous::SpawnWorkers& action);
  void Do(const rendezvous::SignalWorker& action);
  void Do(const rendezvous::TakeStacks& action);
  void Do(const rendezvous::DropStacks& action);
  void Do(const rendezvous::LookForActivity& action);
  void Do(const rendezvous::KillProcesses& action);
  void Do(const rendezvous::KillKeeper& action);
  void Do(const rendezvous::KillOrphans& action);
  void Do(const rendezvous::FinishAttempt& action);
  void Do(const rendezvous::Tell& action);

  void HandleEvents();
  void HandleExit(const KeeperEvent& event);
  void ContinueStacks();
  void ReadThreads();
  void ContinueDumps();
  void DropStacks();
  void FindActivities();
  void ShowBoards();
  absl::Duration Now() const { return deps_.clock.Monotonic(); }

  const WorkerStart start_;
  const Deps deps_;
  rendezvous::Agent agent_;
  std::deque<rendezvous::AgentEvent> events_;
  bool is_deciding_ = false;
  std::optional<WorkerSet> workers_;  // workers of the current attempt
  OomKills oom_kills_before_;
  ProcessProbe<rendezvous::Activity> activity_{&LookAtThreads};
  std::optional<StackRound> stacks_;  // set while stacks are being taken
  ProcessProbe<std::string> threads_{&DescribeThreads};
  std::map<int, StackDump> dumps_;  // keyed by worker
  absl::Duration next_boards_ = absl::ZeroDuration();
};

}  // namespace trainctl::launcher
