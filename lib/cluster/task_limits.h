// Finds how many more processes and threads the system lets this user start. Reads /proc and control groups,
// without changing anything. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainctl::cluster {

struct TaskLimit {
  std::string name;    // such as "ulimit -u" or "pids.max of /sys/fs/cgroup/job"
  int64_t most = 0;    // maximum number of processes and threads
  int64_t in_use = 0;  // number that this user or the control group has now
  int64_t room() const { return most > in_use ? most - in_use : 0; }
};

// Returns the limits that apply to this process. `most_of_user` is its ulimit -u, if any; the kernel does not
// enforce it for root or for a process with the right to raise it. `root` is the folder that contains proc
// and sys.
std::vector<TaskLimit> FindTaskLimits(std::optional<int64_t> most_of_user, const std::string& root = "");

// Returns how many processes and threads a run on this machine, including its launcher and workers, needs to
// start and end reliably. A run with more cores or with accelerators may need more.
int64_t TasksOfRun(int64_t num_workers, int64_t threads_per_worker);

}  // namespace trainctl::cluster
