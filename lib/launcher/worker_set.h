// A node's processes of one attempt, with what belongs to each: log, board, output. Workers are counted from
// 0 on the node. Internal to lib/launcher. Not thread safe; no call waits for a worker.
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
#include "launcher/disk_queue.h"
#include "launcher/keeper.h"
#include "launcher/progress_board.h"
#include "launcher/worker_contract.h"
#include "launcher/worker_log.h"
#include "rendezvous/agent.h"
#include "run/run_folder.h"

namespace trainctl::launcher {

// How a node's workers are started, in every attempt.
struct WorkerStart {
  const run::RunFolder* run = nullptr;
  std::string node;
  std::string program;            // a path
  std::vector<std::string> args;  // after the flags of the worker contract
  std::vector<std::string> env;   // without the names that are set per worker
  std::string socket_path;        // of the agent
  int64_t log_limit_bytes = 0;    // of a worker's log (WorkerLog::Open)
  // Lets a worker in there; returns the file with its token.
  std::function<absl::StatusOr<std::string>(const rendezvous::Slot& slot)> admit;
  std::string address = std::string(kLoopback);  // on which workers reach each other
  KeeperOwner owner;
};

class WorkerSet {
 public:
  // Lines of output, printable.
  using LineSink = std::function<void(int rank, absl::string_view line)>;

  struct Worker {
    int rank = -1;
    WorkerLog log;
    ProgressBoard board;
    int output_fd = -1;  // -1 once it is closed
    pid_t pid = -1;
    std::optional<ExitStatus> exit;
    bool has_left = false;  // it announced its end: all of its work is done and saved
    bool is_quiet = false;  // its output goes to its log alone
    bool shows_stack = false;
  };

  // Starts one for each slot, in that attempt. How that went, and all that follows, comes with TakeEvents.
  static absl::StatusOr<WorkerSet> Start(const WorkerStart& start, const rendezvous::SpawnWorkers& spawn,
                                         int64_t attempt, DiskQueue& disk, LineSink sink);
  WorkerSet(WorkerSet&&) = default;
  ~WorkerSet();

  int size() const { return static_cast<int>(workers_.size()); }
  Worker& at(int worker_id) { return workers_[static_cast<size_t>(worker_id)]; }
  const Worker& at(int worker_id) const { return workers_[static_cast<size_t>(worker_id)]; }
  bool AllExited() const;
  // Of those that run and have not announced their end.
  std::map<int, rendezvous::Standing> Boards() const;

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
  // Has its main thread show its stack; `shows_stack` says that it does. Its output goes to its log alone
  // from then on, unless `is_shown`: thousands of stacks, and of last words, would hide the one that matters.
  void AskForStack(int worker_id, bool is_shown);
  void KillAll() { keeper_.KillAll(); }
  void Beat() { keeper_.Beat(); }
  pid_t keeper_pid() const { return keeper_.pid(); }

 private:
  WorkerSet(LineSink sink, Keeper keeper) : sink_(std::move(sink)), keeper_(std::move(keeper)) {}
  bool ReadSome(int worker_id);  // true if there was something
  void TakeLine(Worker& worker, absl::string_view line) const;

  LineSink sink_;
  Keeper keeper_;
  std::vector<Worker> workers_;
};

}  // namespace trainctl::launcher
