// What this process inherits: as a subreaper it becomes the parent of whatever its descendants leave behind
// when they end. That is the keeper's part (keeper.h), and this process's if the keeper was killed. Not
// thread safe.
#pragma once

#include <sys/types.h>

#include <set>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace trainctl::launcher {

class Orphans {
 public:
  // Inherits from now on. Processes that are this one's children already are never touched.
  Orphans();
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // A child that is none of them.
  void AddOwn(pid_t pid) { own_.insert(pid); }
  void RemoveOwn(pid_t pid) { own_.erase(pid); }

  // SIGKILLs them and what they leave behind in turn, until none is left. EnvironmentError when some cannot
  // be ended within `timeout`.
  absl::Status KillAll(absl::Duration timeout);

 private:
  std::set<pid_t> own_;
  int was_subreaper_ = 0;
};

}  // namespace trainctl::launcher
