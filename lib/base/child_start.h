// Starting a program from a process whose memory and locks cannot be relied on: one that was forked from a
// process with threads. Everything that allocates is done beforehand.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/subprocess.h"

namespace trainctl {

// What is to be started, made ready. Immutable; thread safe.
class ChildStart {
 public:
  explicit ChildStart(SpawnOptions options);
  ChildStart(ChildStart&&) = delete;  // it points into itself

  // Forks and executes; async-signal-safe. Returns when the program runs, or -1 with the reason in `*error`.
  // The new process's parent is the calling one.
  pid_t Run(int* error) const;
  const std::string& program() const { return options_.argv[0]; }

 private:
  [[noreturn]] void RunChild(pid_t parent, int error_fd, int null_fd) const;
  void SetSignals() const;

  const SpawnOptions options_;
  std::vector<char*> argv_;
  std::vector<char*> env_;
  cpu_set_t cores_;
  sigset_t mask_;  // for the program
};

}  // namespace trainctl
