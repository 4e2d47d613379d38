// One start of all workers, until they have all ended. Internal to lib/launcher. Not thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/activity_probe.h"
#include "launcher/console.h"
#include "launcher/cpu_layout.h"
#include "launcher/disk_queue.h"
#include "launcher/job.h"
#include "launcher/oom_counter.h"
#include "launcher/orphans.h"
#include "launcher/signal_pipe.h"
#include "launcher/stack_dump.h"
#include "launcher/watchdog.h"
#include "launcher/worker_set.h"
#include "rendezvous/service.h"
#include "run/journal.h"

namespace trainctl::launcher {

// What lasts for the whole job.
struct JobContext {
  const JobOptions& options;
  const Clock& clock;
  std::shared_ptr<run::Journal> journal;  // shared with what waits in `disk`
  DiskQueue& disk;
  rendezvous::RendezvousService& service;
  Console& console;
  Orphans& orphans;
  SignalPipe& signals;
  std::vector<CpuShare> shares = {};
  std::vector<std::string> env = {};
  std::string socket_path = {};
  int64_t num_restarts = 0;
  int64_t checkpoint_step = -1;
  int num_interrupts = 0;
  rendezvous::StopMode stop = rendezvous::StopMode::kNone;

  // A journal that cannot be written (a full disk) is a message: it ends no job and hides no failure.
  void Record(run::JournalEvent event);
  void ShowDiskErrors();
};

struct AttemptResult {
  enum class Kind { kFinished, kStopped, kStoppedNow, kFailed };
  Kind kind = Kind::kFinished;
  int64_t generation = 0;
  Failure failure;               // kFailed
  std::optional<int> exit_code;  // of the failed worker, when it exited by itself
  std::string log_tail;          // of the failed worker
};

// What was found out and done by the disk's thread.
struct DiskNews {
  std::atomic<int64_t> recorded_generation{0};
  std::atomic<int64_t> checkpoint_step{-1};
  std::atomic<bool> is_looking{false};
  std::mutex mutex;
  absl::Status lost_folder;  // why the run's folder is not where it was
};

class Attempt {
 public:
  explicit Attempt(JobContext& job);
  // Starts the workers and returns when every process of the attempt has ended, or cannot be ended.
  absl::StatusOr<AttemptResult> Run();

 private:
  void PollOnce();
  void HandleEvents();
  void HandleExit(const KeeperEvent& event);
  void HandleLostKeeper();
  void HandleSignals();
  void HandleNotices();
  void HandleStop(const rendezvous::Notice& notice);
  void HandleFailure(const rendezvous::Notice& notice);
  void RecordGeneration(int64_t generation);
  void EndAtOnce(rendezvous::StopMode mode);
  void LookForHangs();
  void ContinueStackDump();
  void EndTheSlowToLeave();
  void LookForCheckpoint();
  void HandleDisk();
  void LoseRunFolder(const absl::Status& why);
  void BeginKilling(absl::Duration grace);  // SIGTERM now, SIGKILL after `grace`
  void KillEverything();
  absl::Duration Now() const { return job_.clock.Monotonic(); }

  JobContext& job_;
  AttemptResult result_;
  std::optional<WorkerSet> workers_;
  absl::Status start_;       // that a worker could not be started
  bool done_ = false;        // the result is known
  bool is_running_ = false;  // every worker has its rank
  bool is_killing_ = false;
  bool is_over_ = false;  // no process is left, but what cannot be ended
  absl::Duration kill_deadline_ = absl::InfiniteDuration();
  absl::Duration keeper_deadline_ = absl::InfiniteDuration();  // for the keeper to have killed everything
  absl::Duration next_checkpoint_look_ = absl::ZeroDuration();
  std::shared_ptr<DiskNews> news_;
  int64_t told_generation_ = 0;  // that it is recorded
  OomKills oom_kills_before_;
  Watchdog watchdog_;
  ActivityProbe activity_;
  int hung_ = -1;                   // the worker that the watchdog has found
  std::optional<StackDump> stack_;  // of it, while it is taken
};

}  // namespace trainctl::launcher
