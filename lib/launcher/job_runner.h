// Carries out what the supervisor of a job decides, in the launcher's process: nodes, journal, console,
// signals. Internal to lib/launcher. Not thread safe.
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
    std::shared_ptr<run::Journal> journal;  // shared with what waits in `disk`
    DiskQueue& disk;
    rendezvous::RendezvousService& service;
    Console& console;
    SignalPipe& signals;
  };

  // This machine's workers, where it is the only node.
  struct LocalNode {
    WorkerStart start;
    std::vector<rendezvous::Slot> slots;
  };
  JobRunner(Deps deps, std::optional<LocalNode> local);
  // Returns when every process of the job has ended, or cannot be ended.
  absl::StatusOr<JobOutcome> Run();

  // A journal that cannot be written (a full disk) is a message: it ends no job and hides no failure.
  void Record(run::JournalEvent event);
  void ShowDiskErrors();

 private:
  // What was found out and done by the disk's thread.
  struct DiskNews {
    std::atomic<int64_t> recorded_generation{0};
    std::atomic<int64_t> checkpoint_step{-1};
    std::atomic<bool> is_looking{false};
    std::mutex mutex;
    absl::Status lost_folder;  // why the run's folder is not where it was
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
  const absl::Duration tick_;  // what looks at all nodes and ranks comes so often, not with each message
  absl::Duration next_tick_ = absl::ZeroDuration();
  std::vector<rendezvous::Slot> local_slots_;
  Orphans orphans_;
  std::optional<NodeHost> local_;  // nullopt: all nodes have agents
  AgentStarter agents_;
  std::vector<std::string> to_start_;  // nodes whose agents are asked for
  int num_steps_ = 0;
  std::vector<std::string> invitation_files_;
  rendezvous::Supervisor supervisor_;
  std::deque<rendezvous::SupervisorEvent> events_;
  bool is_deciding_ = false;
  std::optional<absl::StatusOr<JobOutcome>> outcome_;
  absl::Duration next_checkpoint_look_ = absl::ZeroDuration();
  std::shared_ptr<DiskNews> news_ = std::make_shared<DiskNews>();
  int64_t told_generation_ = 0;  // that it is recorded
};

}  // namespace trainctl::launcher
