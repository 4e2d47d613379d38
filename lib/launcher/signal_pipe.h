// Signals as something to poll. While one exists, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 (with which
// batch systems warn of the end of an allocation) arrive here instead of ending the process, the last three
// unless they were ignored before (nohup), and SIGPIPE is ignored: a closed terminal ends no job. One at a
// time in a process.
#pragma once

#include <signal.h>

#include <array>
#include <vector>

#include "absl/status/statusor.h"

namespace trainctl::launcher {

// Those that stop a job.
inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
// Nobody who ignores one of these for us (nohup, a script that keeps SIGUSR1 to itself) is overruled.
bool IsKeptOut(int signal_number, const struct sigaction& former);

class SignalPipe {
 public:
  static absl::StatusOr<SignalPipe> Install();
  SignalPipe(SignalPipe&& other) noexcept;
  ~SignalPipe();  // puts the former handlers back

  int fd() const { return read_fd_; }
  bool HasAny() const;      // signals to take
  std::vector<int> Take();  // the signals that came since the last call

 private:
  SignalPipe() = default;
  int read_fd_ = -1;
  int write_fd_ = -1;
  std::array<struct sigaction, 6> former_;
};

}  // namespace trainctl::launcher
