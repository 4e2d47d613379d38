// The parent process of one attempt's workers, a single-threaded fork of the launcher. It starts the workers,
// reports how they end, and adopts any processes they leave behind. No process that they started outlives
// either the keeper or the launcher, even if it left its session, forked twice, or cleared its environment:
//
//   the launcher dies (SIGKILL)   the keeper kills all its descendants, then itself
//   the launcher is unresponsive  the keeper does the same and also kills the launcher, if a limit is set
//   the keeper dies               the kernel kills the workers; the launcher adopts and kills the rest
//
// The keeper holds the run's lock until this cleanup is done, so that no other launch uses a folder that is
// still being written to. A keeper without workers only guards its owner.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/child_start.h"
#include "base/subprocess.h"

namespace trainctl::launcher {

struct KeeperEvent {
  // The kinds of events, and the members that each one sets.
  enum class Kind {
    // The worker's program runs. Sets pid.
    kStarted,
    // The worker's program cannot be executed. `error` is the errno.
    kNotStarted,
    // The worker has ended. Sets exit.
    kExited,
    // Process `pid` is still alive long after SIGKILL. `worker` is -1 if the process is not a worker.
    kStuck,
    // No processes are left after KillAll.
    kAllGone,
    // The keeper itself has died. No more events follow.
    kLost,
  };
  Kind kind = Kind::kLost;
  int worker = -1;  // index into the `workers` argument of Start
  pid_t pid = 0;
  int error = 0;
  ExitStatus exit;
};

struct KeeperOwner {
  // Longest allowed time between calls to Beat.
  absl::Duration silent_after = absl::InfiniteDuration();
  // Files to remove if the launcher dies before the keeper, and folders that contain only such files. They
  // must exist when the keeper starts.
  std::vector<std::string> leftovers;
  // A folder to remove in the same case, along with any files in it. May be empty.
  std::string folder;
  const char* name = "trainctl-keeper";  // process name of up to 15 characters
};

// The launcher's handle to a keeper process. Not thread-safe.
class Keeper {
 public:
  // Starts a keeper and its workers. Each worker runs in its own session and dies with the keeper.
  // `stuck_after` is the time that a killed process may take to end before it is reported as kStuck. No
  // method waits for a disk, because the keeper's children load the programs.
  static absl::StatusOr<Keeper> Start(std::vector<SpawnOptions> workers, int lock_fd,
                                      absl::Duration stuck_after, KeeperOwner owner = {});
  Keeper(Keeper&& other) noexcept;
  Keeper& operator=(Keeper&&) = delete;
  // Makes the keeper kill all remaining processes, without waiting for it.
  ~Keeper();

  pid_t pid() const { return pid_; }
  int fd() const { return event_fd_; }  // readable while there are events to take
  // Returns the events since the last call, without blocking.
  std::vector<KeeperEvent> Take();

  // Ends a keeper that has no workers, immediately, because it has nothing left to clean up.
  void Dismiss();

  // Sends a signal to a worker that is still running, and to its process group.
  void Signal(int worker, int signal_number);
  void SignalMainThread(int worker, int signal_number);  // signals only the worker's main thread
  // Shows the keeper that the launcher is alive (see KeeperOwner::silent_after).
  void Beat();
  // Kills all processes. The keeper then reports kAllGone, or kStuck for each process that does not end.
  void KillAll();

  struct Command;  // internal

 private:
  Keeper() = default;
  void Send(const Command& command);
  pid_t pid_ = -1;
  int command_fd_ = -1;
  int event_fd_ = -1;
  bool is_over_ = false;  // no more events follow
};

}  // namespace trainctl::launcher
