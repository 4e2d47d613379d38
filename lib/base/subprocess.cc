#include "base/subprocess.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

extern char** environ;

namespace trainctl {
namespace {

// Everything the child needs, made before the fork: between fork and exec only async-signal-safe
// calls are allowed, since other threads may have held any lock.
struct ChildPlan {
  std::vector<char*> argv;
  std::vector<char*> env;
  cpu_set_t cores;
  bool pin = false;
  bool new_session = false;
  bool die_with_parent = false;
  int stdio[3];
  const int* inherited_fds = nullptr;
  size_t num_inherited = 0;
  int error_fd = -1;
  pid_t parent = 0;
};

[[noreturn]] void ChildFailed(int error_fd) {
  const int error_number = errno;
  (void)!::write(error_fd, &error_number, sizeof(error_number));
  ::_exit(127);
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  if (plan.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(127);  // it died before the line above
  }
  if (plan.new_session) ::setsid();
  if (plan.pin) ::sched_setaffinity(0, sizeof(plan.cores), &plan.cores);
  // The descriptors may overlap 0..2: move them out of the way first.
  int moved[3];
  for (int i = 0; i < 3; ++i) {
    moved[i] = ::fcntl(plan.stdio[i], F_DUPFD, 10);
    if (moved[i] < 0) ChildFailed(plan.error_fd);
  }
  for (int i = 0; i < 3; ++i) {
    if (::dup2(moved[i], i) < 0) ChildFailed(plan.error_fd);
  }
  // Whatever else this process has open is not the child's business.
  ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  for (size_t i = 0; i < plan.num_inherited; ++i) ::fcntl(plan.inherited_fds[i], F_SETFD, 0);
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(plan.argv[0], plan.argv.data(), plan.env.data());
  ChildFailed(plan.error_fd);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

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
  int error_pipe[2];
  if (::pipe2(error_pipe, O_CLOEXEC) != 0) return ErrnoError("create", "a pipe", errno);
  const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ChildPlan plan;
  plan.argv = Pointers(options.argv);
  plan.env = Pointers(options.env);
  plan.pin = !options.cores.empty();
  CPU_ZERO(&plan.cores);
  for (const int core : options.cores) CPU_SET(core, &plan.cores);
  plan.new_session = options.new_session;
  plan.die_with_parent = options.die_with_parent;
  plan.stdio[0] = options.stdin_fd >= 0 ? options.stdin_fd : null_fd;
  plan.stdio[1] = options.stdout_fd;
  plan.stdio[2] = options.stderr_fd;
  plan.error_fd = error_pipe[1];
  plan.inherited_fds = options.inherited_fds.data();
  plan.num_inherited = options.inherited_fds.size();
  plan.parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) RunChild(plan);
  const int fork_error = errno;
  ::close(error_pipe[1]);
  if (null_fd >= 0) ::close(null_fd);
  if (pid < 0) {
    ::close(error_pipe[0]);
    return ErrnoError("start", options.argv[0], fork_error);
  }
  int child_error = 0;
  ssize_t count;
  do {
    count = ::read(error_pipe[0], &child_error, sizeof(child_error));
  } while (count < 0 && errno == EINTR);
  ::close(error_pipe[0]);
  Subprocess process;
  process.pid_ = pid;
  if (count > 0) {
    process.Wait();
    return ErrnoError("execute", options.argv[0], child_error);
  }
  process.pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
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

std::vector<std::string> CurrentEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

}  // namespace trainctl
