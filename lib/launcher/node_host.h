// Carries out what a node's agent decides, with the processes of this machine: starts workers, ends them with
// everything that they started, keeps their logs, and tells the coordinator. Driven by the caller's poll(2)
// loop; no call waits. Not thread safe. To be used from a thread that lives as long as the process (the main
// thread): the workers die with it.
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
    DiskQueue& disk;  // for logs
    Orphans& orphans;
    std::function<void(rendezvous::NodeEvent event)> tell;  // the coordinator
    WorkerSet::LineSink show_line;
  };

  NodeHost(WorkerStart start, rendezvous::AgentOptions options, Deps deps);

  void Handle(rendezvous::NodeCommand command);

  void AddPollFds(std::vector<pollfd>& fds) const;
  // After poll(2): whatever there is to read, to tell and to end.
  void Advance();
  // How long poll(2) may wait, in ms, at most `most`: then Advance has something to do.
  int PollMs(absl::Duration most) const;
  // No process of an attempt is left.
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
  std::optional<WorkerSet> workers_;  // of the attempt
  OomKills oom_kills_before_;
  ProcessProbe<rendezvous::Activity> activity_{&LookAtThreads};
  std::optional<StackRound> stacks_;  // while they are taken
  ProcessProbe<std::string> threads_{&DescribeThreads};
  std::map<int, StackDump> dumps_;  // by worker
  absl::Duration next_boards_ = absl::ZeroDuration();
};

}  // namespace trainctl::launcher
