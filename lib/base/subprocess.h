// Starts and monitors other programs. A Subprocess does not reap its process until Reap or Wait is called, so
// its pid and process group are not reused before then. Not thread-safe.
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
  int code = 0;  // exit code or signal number

  bool Success() const { return !signaled && code == 0; }
  // Returns, for example, "exited with code 3" or "killed by SIGSEGV (11)".
  std::string Describe() const;
};

std::string SignalName(int signal_number);  // for example "SIGSEGV"

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is the program's path; PATH is not searched
  std::vector<std::string> env;   // complete environment as "NAME=value"
  std::vector<int> cores;         // cores to pin it to before exec; empty to inherit the caller's
  // Whether to start a new session and process group, so that Ctrl-C in the terminal does not reach it.
  bool new_session = false;
  // Whether the kernel kills the process (SIGKILL) when the *thread* that called Start ends for any reason.
  // Call Start from a thread that lives as long as the process should.
  bool die_with_parent = false;
  // Signals that are ignored and signals that are blocked when the program starts. All others have their
  // default action.
  std::vector<int> ignored_signals;
  std::vector<int> blocked_signals;
  int stdin_fd = -1;  // -1 for /dev/null
  int stdout_fd = 1;
  int stderr_fd = 2;
  // Descriptors above 2 that the program inherits under the same numbers. All others are closed.
  std::vector<int> inherited_fds;
};

class Subprocess {
 public:
  // Starts a program. Returns EnvironmentError with the path and the reason if it cannot be executed.
  static absl::StatusOr<Subprocess> Start(const SpawnOptions& options);
  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;
  ~Subprocess();  // does not end the process

  pid_t pid() const { return pid_; }
  // A descriptor for poll(2) that becomes readable when the process ends.
  int pidfd() const { return pidfd_; }
  // Returns the exit status if the process has ended. Does not block or reap.
  std::optional<ExitStatus> TryWait();
  // Blocks until the process ends, then reaps it.
  ExitStatus Wait();
  // Reaps the process, which must have ended. Its pid may be reused afterwards.
  void Reap();
  // Sends a signal to the process or, if it was started with new_session, to its process group. No-op after
  // Reap.
  void Signal(int signal_number);
  void SignalGroup(int signal_number);

 private:
  Subprocess() = default;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  bool reaped_ = false;
  std::optional<ExitStatus> status_;
};

// Returns the path of a program found in PATH, or `program` itself if it is a path. Empty if it is not found.
std::string FindInPath(absl::string_view program);

// Returns the calling process's environment as "NAME=value" strings.
std::vector<std::string> CurrentEnvironment();

}  // namespace trainctl
