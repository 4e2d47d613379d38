// Starts a program from a process whose memory and locks may be inconsistent, because it was forked from a
// multithreaded process. Everything that requires allocation is done in advance.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/subprocess.h"

namespace trainctl {

// A program that is ready to be started. Immutable; thread-safe.
class ChildStart {
 public:
  explicit ChildStart(SpawnOptions options);
  ChildStart(ChildStart&&) = delete;  // not movable; contains pointers into itself

  // Forks and executes the program as a child of the calling process. Async-signal-safe. Returns the process
  // id once the program is running, or -1 on failure, in which case `*error` is the errno.
  pid_t Run(int* error) const;
  const std::string& program() const { return options_.argv[0]; }

 private:
  [[noreturn]] void RunChild(pid_t parent, int error_fd, int null_fd) const;
  void SetSignals() const;

  const SpawnOptions options_;
  std::vector<char*> argv_;
  std::vector<char*> env_;
  cpu_set_t cores_;
  sigset_t mask_;  // signal mask of the program
};

}  // namespace trainctl
