#include "base/subprocess.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/child_start.h"
#include "base/files.h"
#include "base/status.h"

extern char** environ;

namespace trainctl {

std::string SignalName(int signal_number) {
  const char* abbreviation = ::sigabbrev_np(signal_number);
  return abbreviation != nullptr ? absl::StrCat("SIG", abbreviation) : absl::StrCat("signal ", signal_number);
}

std::string ExitStatus::Describe() const {
  return signaled ? absl::StrCat("killed by ", SignalName(code), " (", code, ")")
                  : absl::StrCat("exited with code ", code);
}

absl::StatusOr<Subprocess> Subprocess::Start(const SpawnOptions& options) {
  TRAINCTL_CHECK(!options.argv.empty());
  const ChildStart start(options);
  int error = 0;
  Subprocess process;
  process.pid_ = start.Run(&error);
  if (process.pid_ < 0) return ErrnoError("execute", options.argv[0], error);
  process.pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, process.pid_, 0));
  if (process.pidfd_ < 0) {
    const absl::Status status = ErrnoError("observe", options.argv[0], errno);
    process.Signal(SIGKILL);
    process.Wait();
    return status;
  }
  return process;
}

Subprocess::Subprocess(Subprocess&& other) noexcept { *this = std::move(other); }

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(reaped_, other.reaped_);
  std::swap(status_, other.status_);
  return *this;
}

Subprocess::~Subprocess() {
  if (pidfd_ >= 0) ::close(pidfd_);
}

std::optional<ExitStatus> Subprocess::TryWait() {
  if (status_ || reaped_) return status_;
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  status_ = ExitStatus{info.si_code != CLD_EXITED, info.si_status};
  return status_;
}

ExitStatus Subprocess::Wait() {
  siginfo_t info = {};
  while (!status_ && ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
  if (!status_) status_ = ExitStatus{info.si_code != CLD_EXITED, info.si_status};
  Reap();
  return *status_;
}

void Subprocess::Reap() {
  if (std::exchange(reaped_, true)) return;
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Subprocess::Signal(int signal_number) {
  if (!reaped_ && pid_ > 0) ::kill(pid_, signal_number);
}

void Subprocess::SignalGroup(int signal_number) {
  if (!reaped_ && pid_ > 0) ::kill(-pid_, signal_number);
}

std::string FindInPath(absl::string_view program) {
  if (absl::StrContains(program, '/')) {
    std::string path(program);
    return ::access(path.c_str(), X_OK) == 0 ? path : "";
  }
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty())) {
    std::string candidate = absl::StrCat(folder, "/", program);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

std::vector<std::string> CurrentEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

}  // namespace trainctl
