// The processes of one attempt, with what belongs to each: log, board, output. Internal to lib/launcher. Not
// thread safe; no call waits for a worker.
#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/keeper.h"
#include "launcher/progress_board.h"
#include "launcher/worker_log.h"
#include "rendezvous/coordinator.h"

namespace trainctl::launcher {

struct JobContext;

class WorkerSet {
 public:
  struct Worker {
    WorkerLog log;
    ProgressBoard board;
    int output_fd = -1;  // -1 once it is closed
    pid_t pid = -1;
    std::optional<ExitStatus> exit;
    std::optional<absl::Duration> left;  // when it announced its end: all of its work is done and saved
  };

  // Starts one for each slot. How that went, and all that follows, comes with TakeEvents.
  static absl::StatusOr<WorkerSet> Start(JobContext& job);
  WorkerSet(WorkerSet&&) = default;
  ~WorkerSet();

  int size() const { return static_cast<int>(workers_.size()); }
  Worker& at(int worker_id) { return workers_[static_cast<size_t>(worker_id)]; }
  const Worker& at(int worker_id) const { return workers_[static_cast<size_t>(worker_id)]; }
  bool AllExited() const;
  // Of those that run and have not announced their end, by rank.
  std::map<int, Standing> Boards() const;

  void AddPollFds(std::vector<pollfd>& fds) const;
  void ReadOutput();
  // Everything that the dead have written, and the last lines without an end.
  void DrainOutput();
  // What another program says of a worker: into its log, and not shown.
  void AddToLog(int worker_id, absl::string_view bytes) {
    at(worker_id).log.Add(bytes, [](auto) {});
  }
  // Exits are noted, too.
  std::vector<KeeperEvent> TakeEvents();

  void Signal(int worker_id, int signal_number) { keeper_.Signal(worker_id, signal_number); }
  void SignalMainThread(int worker_id, int signal_number) {
    keeper_.SignalMainThread(worker_id, signal_number);
  }
  bool KillAll();  // true the first time
  pid_t keeper_pid() const { return keeper_.pid(); }

 private:
  WorkerSet(JobContext& job, Keeper keeper) : job_(&job), keeper_(std::move(keeper)) {}
  bool ReadSome(int worker_id);  // true if there was something

  JobContext* job_;
  Keeper keeper_;
  bool is_killing_ = false;
  std::vector<Worker> workers_;
};

}  // namespace trainctl::launcher
