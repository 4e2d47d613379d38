#include "launcher/process_tree.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "launcher/process_scan.h"

namespace trainctl::launcher {
namespace {

constexpr timespec kPause = {0, 5'000'000};

struct Scan {
  const char* marker;
  const std::set<pid_t>* own;
  pid_t self;
  int num_live = 0;
  int num_killed = 0;
  int num_reaped = 0;
};

void KillAdoptedOrMarked(pid_t pid, void* context) {
  Scan& scan = *static_cast<Scan*>(context);
  if (pid == scan.self || scan.own->contains(pid)) return;
  if (ParentOf(pid) == scan.self) {
    // A child stays this process's until it is reaped, so its pid cannot change hands here.
    ++scan.num_live;
    if (::waitpid(pid, nullptr, WNOHANG) == pid) {
      ++scan.num_reaped;
    } else if (::kill(pid, SIGKILL) == 0) {
      ++scan.num_killed;
    }
    return;
  }
  if (KillIfMarked(pid, scan.marker)) {
    ++scan.num_live;
    ++scan.num_killed;
  }
}

void ReapIfAdopted(pid_t pid, void* context) {
  const Scan& scan = *static_cast<Scan*>(context);
  if (pid != scan.self && !scan.own->contains(pid) && ParentOf(pid) == scan.self) {
    ::waitpid(pid, nullptr, WNOHANG);
  }
}

void NoteChild(pid_t pid, void* context) {
  auto* own = static_cast<std::set<pid_t>*>(context);
  if (ParentOf(pid) == ::getpid()) own->insert(pid);
}

struct WardenScan {
  const char* marker;
  int num_marked;
};

void KillMarked(pid_t pid, void* context) {
  WardenScan& scan = *static_cast<WardenScan*>(context);
  if (KillIfMarked(pid, scan.marker)) ++scan.num_marked;
}

// Runs in a fork of a process with threads: system calls only.
[[noreturn]] void RunWarden(const char* marker, int control_fd, int lock_fd) {
  ::setsid();
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2})
    ::signal(signal_number, SIG_IGN);
  ::prctl(PR_SET_NAME, "trainctl-warden");
  // Only the two descriptors stay: no socket, pipe or terminal may live on because of the warden.
  const int low = control_fd < lock_fd ? control_fd : lock_fd;
  const int high = control_fd < lock_fd ? lock_fd : control_fd;
  if (low > 0) ::syscall(SYS_close_range, 0U, static_cast<unsigned>(low - 1), 0U);
  if (low >= 0 && high > low + 1) {
    ::syscall(SYS_close_range, static_cast<unsigned>(low + 1), static_cast<unsigned>(high - 1), 0U);
  }
  ::syscall(SYS_close_range, static_cast<unsigned>(high + 1), ~0U, 0U);
  char byte;
  ssize_t count;
  do {
    count = ::read(control_fd, &byte, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 1) ::_exit(0);  // told that all is well
  // The launcher is dead. Three empty passes: a process can be forked behind a pass.
  for (int empty_passes = 0; empty_passes < 3;) {
    WardenScan scan{marker, 0};
    ForEachProcess(&KillMarked, &scan);
    empty_passes = scan.num_marked == 0 ? empty_passes + 1 : 0;
    ::nanosleep(&kPause, nullptr);
  }
  ::_exit(0);
}

}  // namespace

ProcessTree::ProcessTree(std::string marker) : marker_(std::move(marker)) {
  ::prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ForEachProcess(&NoteChild, &own_);
}

ProcessTree::~ProcessTree() { ::prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_); }

absl::Status ProcessTree::KillAll(absl::Duration timeout, int* num_killed) {
  const RealClock clock;
  const absl::Duration give_up = clock.Monotonic() + timeout;
  *num_killed = 0;
  while (true) {
    Scan scan{marker_.c_str(), &own_, ::getpid()};
    ForEachProcess(&KillAdoptedOrMarked, &scan);
    *num_killed += scan.num_killed;
    if (scan.num_live == 0) return absl::OkStatus();
    if (clock.Monotonic() > give_up) {
      return EnvironmentError(absl::StrCat(scan.num_live, " processes of the job cannot be ended (marked ",
                                           marker_, "); they may hang in the kernel, see 'ps'"));
    }
    ::nanosleep(&kPause, nullptr);
  }
}

void ProcessTree::ReapAdopted() {
  Scan scan{marker_.c_str(), &own_, ::getpid()};
  ForEachProcess(&ReapIfAdopted, &scan);
}

absl::StatusOr<Warden> Warden::Start(const std::string& marker, int lock_fd) {
  int control[2];
  if (::pipe2(control, O_CLOEXEC) != 0) return ErrnoError("create", "a pipe", errno);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(control[1]);
    RunWarden(marker.c_str(), control[0], lock_fd);
  }
  const int fork_error = errno;
  ::close(control[0]);
  if (pid < 0) {
    ::close(control[1]);
    return ErrnoError("start", "the clean-up helper", fork_error);
  }
  Warden warden;
  warden.pid_ = pid;
  warden.control_fd_ = control[1];
  return warden;
}

Warden::Warden(Warden&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), control_fd_(std::exchange(other.control_fd_, -1)) {}

Warden::~Warden() {
  if (pid_ < 0) return;
  (void)!::write(control_fd_, "q", 1);
  ::close(control_fd_);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace trainctl::launcher
