// Delivers signals through a descriptor for poll(2). While a SignalPipe exists, SIGINT, SIGTERM, SIGHUP,
// SIGUSR1, and SIGUSR2 arrive here instead of terminating the process. Batch systems use the last two to
// announce the end of an allocation. SIGHUP, SIGUSR1, and SIGUSR2 stay ignored if they were ignored before
// (nohup). SIGPIPE is ignored, so closing the terminal does not end a job. Only one SignalPipe may exist in a
// process at a time.
#pragma once

#include <signal.h>

#include <array>
#include <vector>

#include "absl/status/statusor.h"

namespace trainctl::launcher {

// The signals that stop a job.
inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
// Whether a signal must stay ignored because it was ignored when the program started, for example by nohup or
// by a script that handles SIGUSR1 itself.
bool IsKeptOut(int signal_number, const struct sigaction& former);

class SignalPipe {
 public:
  // Installs the handlers. The process must not have another SignalPipe.
  static absl::StatusOr<SignalPipe> Install();
  SignalPipe(SignalPipe&& other) noexcept;
  ~SignalPipe();  // restores the previous handlers

  int fd() const { return read_fd_; }
  bool HasAny() const;      // whether there are signals for Take to return
  std::vector<int> Take();  // signals received since the last call

 private:
  SignalPipe() = default;
  int read_fd_ = -1;
  int write_fd_ = -1;
  std::array<struct sigaction, 6> former_;
};

}  // namespace trainctl::launcher
