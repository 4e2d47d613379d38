#include "base/child_start.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace trainctl {
namespace {

[[noreturn]] void ChildFailed(int error_fd) {
  const int error_number = errno;
  (void)!::write(error_fd, &error_number, sizeof(error_number));
  ::_exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ChildStart::ChildStart(SpawnOptions options)
    : options_(std::move(options)), argv_(Pointers(options_.argv)), env_(Pointers(options_.env)) {
  CPU_ZERO(&cores_);
  for (const int core : options_.cores) CPU_SET(core, &cores_);
  ::sigemptyset(&mask_);
  for (const int signal_number : options_.blocked_signals) ::sigaddset(&mask_, signal_number);
}

// No handler of the parent may run in the child, where it would speak for the parent. Until the mask is set,
// every signal waits.
void ChildStart::SetSignals() const {
  for (int signal_number = 1; signal_number < NSIG; ++signal_number) {
    struct sigaction action;
    if (::sigaction(signal_number, nullptr, &action) != 0) continue;
    const bool stays_ignored = action.sa_handler == SIG_IGN && signal_number != SIGPIPE;
    if (!stays_ignored && action.sa_handler != SIG_DFL) ::signal(signal_number, SIG_DFL);
  }
  for (const int signal_number : options_.ignored_signals) ::signal(signal_number, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
}

void ChildStart::RunChild(pid_t parent, int error_fd, int null_fd) const {
  if (options_.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it died before the line above
  }
  if (options_.new_session) ::setsid();
  if (!options_.cores.empty()) ::sched_setaffinity(0, sizeof(cores_), &cores_);
  // The descriptors may overlap 0..2: move them out of the way first.
  const int stdio[3] = {options_.stdin_fd >= 0 ? options_.stdin_fd : null_fd, options_.stdout_fd,
                        options_.stderr_fd};
  int moved[3];
  for (int i = 0; i < 3; ++i) {
    moved[i] = ::fcntl(stdio[i], F_DUPFD, 10);
    if (moved[i] < 0) ChildFailed(error_fd);
  }
  for (int i = 0; i < 3; ++i) {
    if (::dup2(moved[i], i) < 0) ChildFailed(error_fd);
  }
  // Whatever else the parent has open is not the child's business.
  ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  for (const int fd : options_.inherited_fds) ::fcntl(fd, F_SETFD, 0);
  SetSignals();
  ::execve(argv_[0], argv_.data(), env_.data());
  ChildFailed(error_fd);
}

pid_t ChildStart::Run(int* error) const {
  *error = 0;
  int error_pipe[2];
  if (::pipe2(error_pipe, O_CLOEXEC) != 0) {
    *error = errno;
    return -1;
  }
  const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid();
  pid_t pid = ::_Fork();  // without the handlers that libraries have registered for forks
  if (pid == 0) RunChild(parent, error_pipe[1], null_fd);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(error_pipe[1]);
  if (null_fd >= 0) ::close(null_fd);
  ssize_t count = 0;
  if (pid < 0) {
    *error = fork_error;
  } else {
    do {
      count = ::read(error_pipe[0], error, sizeof(*error));
    } while (count < 0 && errno == EINTR);
  }
  ::close(error_pipe[0]);
  if (count > 0) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid = -1;
  }
  return pid;
}

}  // namespace trainctl
