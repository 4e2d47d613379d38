// Ending every process that a job has started, wherever it hides: children of workers that left
// their session, forked twice, or cleared their environment. Two marks find them: an entry in the
// environment, inherited by default, and their parent, which is this process (a subreaper) once
// their own parent has ended. Not thread safe.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace trainctl::launcher {

class ProcessTree {
 public:
  // `marker` is a whole environment entry ("NAME=value") that only this job's processes have.
  // Makes this process adopt orphans of its descendants; processes that are its children already are
  // never touched.
  explicit ProcessTree(std::string marker);
  ~ProcessTree();
  ProcessTree(const ProcessTree&) = delete;
  ProcessTree& operator=(const ProcessTree&) = delete;

  // A child that the caller reaps itself: ignored by ReapAdopted.
  void AddOwn(pid_t pid) { own_.insert(pid); }
  void RemoveOwn(pid_t pid) { own_.erase(pid); }

  // SIGKILLs the marked and the adopted, again and again until none is left. Returns how many were
  // killed; EnvironmentError when some cannot be ended within `timeout`.
  absl::Status KillAll(absl::Duration timeout, int* num_killed);
  // Reaps adopted processes that have ended.
  void ReapAdopted();

 private:
  const std::string marker_;
  std::set<pid_t> own_;
  int was_subreaper_ = 0;
};

// Outlives this process and, if this process dies without ending it (SIGKILL), kills every
// process with the marker. Holds on to `lock_fd` until that is done.
class Warden {
 public:
  // From the thread that also starts the workers. EnvironmentError when it cannot be started.
  static absl::StatusOr<Warden> Start(const std::string& marker, int lock_fd);
  Warden(Warden&& other) noexcept;
  ~Warden();  // ends it, without killing anything
  pid_t pid() const { return pid_; }

 private:
  Warden() = default;
  pid_t pid_ = -1;
  int control_fd_ = -1;
};

}  // namespace trainctl::launcher
