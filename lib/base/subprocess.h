// Starting and observing other programs. A Subprocess observes its process without reaping it, so
// that neither its pid nor its process group can be given to another before Reap. Not thread safe.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct ExitStatus {
  bool signaled = false;
  int code = 0;  // exit code, or the signal's number

  bool Success() const { return !signaled && code == 0; }
  // "exited with code 3", "killed by SIGSEGV (11)"
  std::string Describe() const;
};

std::string SignalName(int signal_number);  // "SIGSEGV"

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is the path of the program; PATH is not searched
  std::vector<std::string> env;   // complete, "NAME=value"
  std::vector<int> cores;         // pinned to these before exec; empty: as the caller
  bool new_session = false;       // own session and process group, away from the terminal's Ctrl-C
  // The kernel kills it (SIGKILL) when the *thread* that called Start ends, however that happens:
  // call Start from a thread that lives as long as the process should.
  bool die_with_parent = false;
  // What the program finds at its start: signals that it does not see, and signals that wait until it lets
  // them in. All others end it, unless they are ignored here.
  std::vector<int> ignored_signals;
  std::vector<int> blocked_signals;
  int stdin_fd = -1;  // -1: /dev/null
  int stdout_fd = 1;
  int stderr_fd = 2;
  std::vector<int> inherited_fds;  // above 2; kept open under their numbers, all others are closed
};

class Subprocess {
 public:
  // EnvironmentError with the path and the reason when the program cannot be executed.
  static absl::StatusOr<Subprocess> Start(const SpawnOptions& options);
  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;
  ~Subprocess();  // leaves the process alone

  pid_t pid() const { return pid_; }
  // Readable once the process has ended: for poll(2).
  int pidfd() const { return pidfd_; }
  // The exit status if it has ended; does not wait, does not reap.
  std::optional<ExitStatus> TryWait();
  // Waits for its end and reaps it.
  ExitStatus Wait();
  // Reaps it; it must have ended. Its pid may be reused from now on.
  void Reap();
  // Sends a signal to it, or to its process group (of new_session). No-op after Reap.
  void Signal(int signal_number);
  void SignalGroup(int signal_number);

 private:
  Subprocess() = default;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  bool reaped_ = false;
  std::optional<ExitStatus> status_;
};

// The path of a program that PATH leads to, or `program` where it is a path itself; empty: there is none.
std::string FindInPath(absl::string_view program);

// The calling process's environment as "NAME=value".
std::vector<std::string> CurrentEnvironment();

}  // namespace trainctl
