// The worker processes of one attempt on a node, each with its log, progress board, and output. Workers are
// numbered from 0 on each node. Internal to lib/launcher. Not thread-safe; no call waits for a worker.
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
#include "launcher/program_files.h"
#include "launcher/progress_board.h"
#include "launcher/worker_contract.h"
#include "launcher/worker_log.h"
#include "rendezvous/agent.h"
#include "run/run_folder.h"

namespace trainctl::launcher {

// Settings that apply to a node's workers in every attempt.
struct WorkerStart {
  const run::RunFolder* run = nullptr;
  std::string node;
  std::string program;            // path of the worker program
  ProgramFiles files;             // files of the program, which must not change during the run
  std::vector<std::string> args;  // arguments after the flags of the worker contract
  std::vector<std::string> env;   // environment without the variables that are set for each worker
  std::string socket_path;        // socket of the agent
  int64_t log_limit_bytes = 0;    // size limit of each worker's log; see WorkerLog::Open
  // Admits a worker on the agent's socket and returns the path of its token file.
  std::function<absl::StatusOr<std::string>(const rendezvous::Slot& slot)> admit;
  // Address at which workers reach each other.
  std::string address = std::string(kLoopback);
  KeeperOwner owner;
};

class WorkerSet {
 public:
  // Receives lines of output in printable form.
  using LineSink = std::function<void(int rank, absl::string_view line)>;

  struct Worker {
    int rank = -1;
    WorkerLog log;
    ProgressBoard board;
    int output_fd = -1;  // -1 once closed
    pid_t pid = -1;
    std::optional<ExitStatus> exit;
    // Whether the worker has announced its exit, with all of its work done and saved.
    bool has_left = false;
    bool is_quiet = false;  // whether output goes only to the log
    bool shows_stack = false;
  };

  // Starts one worker for each slot, and writes `now` to the logs of earlier attempts. TakeEvents reports
  // whether each one started, and all later events.
  static absl::StatusOr<WorkerSet> Start(const WorkerStart& start, const rendezvous::SpawnWorkers& spawn,
                                         int64_t attempt, absl::Time now, DiskQueue& disk, LineSink sink);
  WorkerSet(WorkerSet&&) = default;
  ~WorkerSet();

  int size() const { return static_cast<int>(workers_.size()); }
  Worker& at(int worker_id) { return workers_[static_cast<size_t>(worker_id)]; }
  const Worker& at(int worker_id) const { return workers_[static_cast<size_t>(worker_id)]; }
  bool AllExited() const;
  // Returns the boards of the workers that are running and have not announced their exit.
  std::map<int, rendezvous::Standing> Boards() const;

  void AddPollFds(std::vector<pollfd>& fds) const;
  void ReadOutput();
  // Reads everything that exited workers have written, including a last line without a newline.
  void DrainOutput();
  // Adds another program's output about a worker to the worker's log, without displaying it.
  void AddToLog(int worker_id, absl::string_view bytes) {
    at(worker_id).log.Add(bytes, [](auto) {});
  }
  // Returns new events and records the exits among them.
  std::vector<KeeperEvent> TakeEvents();

  void Signal(int worker_id, int signal_number) { keeper_.Signal(worker_id, signal_number); }
  // Asks a worker's main thread to dump its stack; `shows_stack` is set once it does. From then on, unless
  // `is_shown`, the worker's output goes only to its log, because thousands of stacks and final messages
  // would hide the one that matters.
  void AskForStack(int worker_id, bool is_shown);
  void KillAll() { keeper_.KillAll(); }
  void Beat() { keeper_.Beat(); }
  pid_t keeper_pid() const { return keeper_.pid(); }

 private:
  WorkerSet(LineSink sink, Keeper keeper) : sink_(std::move(sink)), keeper_(std::move(keeper)) {}
  bool ReadSome(int worker_id);  // returns whether it read anything
  void TakeLine(Worker& worker, absl::string_view line) const;

  LineSink sink_;
  Keeper keeper_;
  std::vector<Worker> workers_;
};

}  // namespace trainctl::launcher
