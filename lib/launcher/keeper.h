// The parent of the workers of one attempt: a process without threads between them and the launcher, forked
// from it. It starts them, tells how they end, and adopts whatever they leave behind. Nothing that they
// started outlives it or the launcher, not even what left its session, forked twice or emptied its
// environment:
//
//   the launcher dies (SIGKILL)   the keeper ends all its descendants, then itself
//   the launcher is silent        the same, and ends the launcher too, where it was told how long that may
//   last the keeper dies               the kernel ends the workers; the launcher inherits and ends the rest
//
// It holds the run's lock until that is done, so that nobody works on a folder that is still written to.
// Without workers it looks after its owner alone.
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
  enum class Kind {
    kStarted,     // pid
    kNotStarted,  // error (errno): the program cannot be executed
    kExited,      // exit
    kStuck,       // pid: a process that does not end though it was killed long ago; worker -1 for any other
    kAllGone,     // after KillAll: no process is left
    kLost,        // the keeper itself was ended: no more events
  };
  Kind kind = Kind::kLost;
  int worker = -1;  // its place in what was handed to Start
  pid_t pid = 0;
  int error = 0;
  ExitStatus exit;
};

struct KeeperOwner {
  // How long the launcher may go without a call of Beat.
  absl::Duration silent_after = absl::InfiniteDuration();
  // Files, and folders that are empty without them, there at the start: removed where the launcher does not
  // live to do it.
  std::vector<std::string> leftovers;
  // Likewise a folder, with the files in it then. May be empty.
  std::string folder;
  const char* name = "trainctl-keeper";  // of the process; at most 15 characters
};

// The launcher's end. Not thread safe.
class Keeper {
 public:
  // Workers get their own sessions and die with the keeper. Nothing that can wait for a disk is done here or
  // later: the programs are loaded by the keeper's children. `stuck_after`: how long a killed process may
  // take.
  static absl::StatusOr<Keeper> Start(std::vector<SpawnOptions> workers, int lock_fd,
                                      absl::Duration stuck_after, KeeperOwner owner = {});
  Keeper(Keeper&& other) noexcept;
  Keeper& operator=(Keeper&&) = delete;
  // Lets it end what is left, without waiting for that.
  ~Keeper();

  pid_t pid() const { return pid_; }
  int fd() const { return event_fd_; }  // readable while there are events to take
  std::vector<KeeperEvent> Take();

  // Ends the keeper of no workers at once: there is nothing left for it to do.
  void Dismiss();

  // To a worker that has not ended, and its process group.
  void Signal(int worker, int signal_number);
  void SignalMainThread(int worker, int signal_number);  // to that alone
  void Beat();
  // Ends everything, whatever it does; kAllGone follows, or kStuck for each that is not to be ended.
  void KillAll();

  struct Command;  // internal

 private:
  Keeper() = default;
  void Send(const Command& command);
  pid_t pid_ = -1;
  int command_fd_ = -1;
  int event_fd_ = -1;
  bool is_over_ = false;  // it has said its last
};

}  // namespace trainctl::launcher
