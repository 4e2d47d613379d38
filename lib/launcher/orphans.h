// Ends what a killed keeper (keeper.h) leaves behind. As a subreaper, this process becomes the parent of
// whatever its descendants leave when they end; what a keeper has started bears the mark of descent_mark.h.
// Other children, such as a daemon of the job script that executed this program, are not touched; if there
// can be no mark, those are not that were children from the start. Not thread safe.
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
