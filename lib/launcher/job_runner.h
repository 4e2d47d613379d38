// Carries out the decisions of a job's supervisor in the launcher's process, which owns the nodes, the
// journal, the console, and the signals. Internal to lib/launcher. Not thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "launcher/agent_starter.h"
#include "launcher/console.h"
#include "launcher/disk_queue.h"
#include "launcher/job.h"
#include "launcher/node_host.h"
#include "launcher/orphans.h"
#include "launcher/signal_pipe.h"
#include "rendezvous/service.h"
#include "rendezvous/supervisor.h"
#include "run/journal.h"

namespace trainctl::launcher {

class JobRunner {
 public:
  struct Deps {
    const JobOptions& options;
    const Clock& clock;
    std::shared_ptr<run::Journal> journal;  // shared with operations queued in `disk`
    DiskQueue& disk;
    rendezvous::RendezvousService& service;
    Console& console;
    SignalPipe& signals;
  };

  // The workers of this machine, if it is the job's only node.
  struct LocalNode {
    WorkerStart start;
    std::vector<rendezvous::Slot> slots;
  };
  JobRunner(Deps deps, std::optional<LocalNode> local);
  // Runs the job. Returns once every process of the job has ended or has proved impossible to end.
  absl::StatusOr<JobOutcome> Run();

  // Appends an event to the journal. If that fails, for example because the disk is full, shows a message and
  // continues; a journal error neither ends the job nor hides a failure.
  void Record(run::JournalEvent event);
  void ShowDiskErrors();

 private:
  // Sets the event's time and passes the event to the watchers.
  run::JournalEvent Tell(run::JournalEvent event);
  // Results of operations on the disk queue's thread.
  struct DiskNews {
    std::atomic<int64_t> recorded_generation{0};
    std::atomic<int64_t> checkpoint_step{-1};
    std::atomic<bool> is_looking{false};
    std::mutex mutex;
    absl::Status lost_folder;  // set if the run folder was moved or removed
  };

  void PollOnce();
  void HandleSignals();
  void HandleNotices();
  void HandleNodes();
  void HandleAgentCommands();
  void Handle(const std::string& node, rendezvous::NodeOffer offer);
  void Handle(const std::string& node, rendezvous::NodeEvent event);
  void Handle(const std::string& node, const rendezvous::NodeNews::Line& line);
  void Handle(const std::string& node, const rendezvous::NodeNews::Dropped& dropped);
  void Handle(const std::string& node, const rendezvous::NodeNews::Gone& gone);
  void HandleDisk();
  void DismissNodes();
  void StartAgents();
  absl::Status StartWithInput(const std::string& name);
  absl::Status StartStep(const std::vector<std::string>& nodes);
  void Show(const AgentStarter::News& news);
  void LookForCheckpoint();

  void Decide(rendezvous::SupervisorEvent event);
  void Do(const rendezvous::ToNode& action);
  void Do(const rendezvous::StartAgent& action);
  void Do(const rendezvous::ToCoordinator& action);
  void Do(const rendezvous::RecordGeneration& action);
  void Do(const rendezvous::RecordStop& action);
  void Do(const rendezvous::RecordCheckpoint& action);
  void Do(const rendezvous::RecordFailure& action);
  void Do(const rendezvous::RecordRestart& action);
  void Do(const rendezvous::Say& action);
  void Do(const rendezvous::ShowProgress& action);
  void Do(const rendezvous::Settle& action);
  void Do(const rendezvous::CheckRestart& action);
  void Do(const rendezvous::Conclude& action);
  absl::Duration Now() const { return deps_.clock.Monotonic(); }

  const Deps deps_;
  // Interval between checks of all nodes and ranks, which are too expensive to run for every message.
  const absl::Duration tick_;
  absl::Duration next_tick_ = absl::ZeroDuration();
  std::vector<rendezvous::Slot> local_slots_;
  Orphans orphans_;
  std::optional<NodeHost> local_;  // nullopt if all nodes have agents
  AgentStarter agents_;
  std::vector<std::string> to_start_;  // nodes without an agent
  int num_steps_ = 0;
  std::vector<std::string> invitation_files_;
  rendezvous::Supervisor supervisor_;
  std::deque<rendezvous::SupervisorEvent> events_;
  bool is_deciding_ = false;
  std::optional<absl::StatusOr<JobOutcome>> outcome_;
  absl::Duration next_checkpoint_look_ = absl::ZeroDuration();
  std::shared_ptr<DiskNews> news_ = std::make_shared<DiskNews>();
  // Latest generation that the supervisor knows to be recorded.
  int64_t told_generation_ = 0;
};

}  // namespace trainctl::launcher
