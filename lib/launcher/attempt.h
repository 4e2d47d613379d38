// One start of all workers, until they have all ended. Internal to lib/launcher. Not thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/subprocess.h"
#include "launcher/console.h"
#include "launcher/cpu_layout.h"
#include "launcher/job.h"
#include "launcher/process_tree.h"
#include "launcher/progress_board.h"
#include "launcher/signal_pipe.h"
#include "launcher/worker_log.h"
#include "rendezvous/service.h"
#include "run/journal.h"

namespace trainctl::launcher {

// What lasts for the whole job.
struct JobContext {
  const JobOptions& options;
  const Clock& clock;
  run::Journal& journal;
  rendezvous::RendezvousService& service;
  Console& console;
  ProcessTree& tree;
  SignalPipe& signals;
  std::vector<CpuShare> shares;
  std::vector<std::string> env;
  std::string socket_path;
  int64_t num_restarts = 0;
  int64_t checkpoint_step = -1;
  int num_interrupts = 0;
  rendezvous::StopMode stop = rendezvous::StopMode::kNone;
};

struct AttemptResult {
  enum class Kind { kFinished, kStopped, kStoppedNow, kFailed };
  Kind kind = Kind::kFinished;
  int64_t generation = 0;
  Failure failure;               // kFailed
  std::optional<int> exit_code;  // of the failed worker, when it exited by itself
  std::string log_tail;          // of the failed worker
};

class Attempt {
 public:
  explicit Attempt(JobContext& job) : job_(job) {}
  // Starts the workers and returns when every process of the attempt has ended.
  absl::StatusOr<AttemptResult> Run();

 private:
  struct Worker {
    Subprocess process;
    WorkerLog log;
    ProgressBoard board;
    int output_fd = -1;  // -1 once it is closed
    std::optional<ExitStatus> exit;
    bool log_error_shown = false;
  };

  absl::Status StartWorkers();
  absl::Status StartWorker(int worker_id);
  void PollOnce();
  bool ReadOutput(int worker_id);  // true if there was something
  void DrainOutput();
  void HandleExits();
  void HandleSignals();
  void HandleNotices();
  void HandleFailure(const rendezvous::Notice& notice);
  void NoteCheckpoint();
  void LoseRunFolder(const absl::Status& why);
  void BeginKilling(absl::Duration grace);  // SIGTERM now, SIGKILL after `grace`
  void KillEverything();
  bool AllExited() const;
  void Journal(run::JournalEvent event);

  JobContext& job_;
  AttemptResult result_;
  std::vector<Worker> workers_;
  bool done_ = false;  // the result is known
  bool killing_ = false;
  absl::Duration kill_deadline_ = absl::InfiniteDuration();
  absl::Duration next_checkpoint_scan_ = absl::ZeroDuration();
  int64_t oom_kills_before_ = 0;
};

}  // namespace trainctl::launcher
