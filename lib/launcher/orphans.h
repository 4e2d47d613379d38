// Ends what a killed keeper (keeper.h) leaves behind. As a subreaper, this process becomes the
// parent of the processes that its descendants leave behind. Processes that a keeper started carry the mark
// of descent_mark.h. Other children, such as a daemon of the job script that executed this program, are left
// alone. If no mark is available, the only children left alone are those that existed at construction. Not
// thread safe.
#pragma once

#include <sys/types.h>

#include <set>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace trainctl::launcher {

class Orphans {
 public:
  // Inherits from now on.
  Orphans();
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // A keeper, which bears the mark itself.
  void AddKeeper(pid_t pid) { kept_.insert(pid); }
  void RemoveKeeper(pid_t pid) { kept_.erase(pid); }

  // SIGKILLs them and what they leave behind in turn, until none is left. EnvironmentError if some cannot be
  // ended within `timeout`.
  absl::Status KillAll(absl::Duration timeout);

 private:
  std::set<pid_t> kept_;  // keepers; without a mark, also children from before
  int was_subreaper_ = 0;
};

}  // namespace trainctl::launcher
