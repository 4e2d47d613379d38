// Ends the processes that a killed keeper (keeper.h) leaves behind. This process becomes a subreaper, so
// orphaned descendants are reparented to it. Processes started by a keeper carry the mark of descent_mark.h;
// other children, such as a daemon of the job script that executed this program, are left alone. If no mark
// is available, leaves only the children that existed at construction alone. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <set>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace trainctl::launcher {

class Orphans {
 public:
  // Makes this process a subreaper.
  Orphans();
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // Registers a keeper, which is spared although it carries the mark itself.
  void AddKeeper(pid_t pid) { kept_.insert(pid); }
  void RemoveKeeper(pid_t pid) { kept_.erase(pid); }

  // Sends SIGKILL to these processes, and to any they leave behind in turn, until none remain. Returns
  // EnvironmentError if some are still alive after `timeout`.
  absl::Status KillAll(absl::Duration timeout);

 private:
  // Registered keepers. If there is no mark, also the children that existed at construction.
  std::set<pid_t> kept_;
  int was_subreaper_ = 0;
};

}  // namespace trainctl::launcher
