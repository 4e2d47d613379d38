#include "launcher/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "base/files.h"
#include "base/status.h"
#include "launcher/descent_mark.h"
#include "launcher/process_scan.h"

namespace trainctl::launcher {

struct Keeper::Command {
  enum class Kind { kSignalGroup, kSignalMainThread, kKillAll, kBeat };
  Kind kind;
  int worker;
  int signal_number;
};

namespace {

constexpr int kPassMs = 5;  // between two rounds of killing

// The keeper itself: the fork of a process with threads, so nothing here allocates or takes a lock.
class KeeperProcess {
 public:
  struct Worker {
    pid_t pid = -1;
    bool ended = false;
  };
  struct Leftover {
    const char* path = nullptr;
    dev_t device = 0;
    ino_t inode = 0;
  };

  KeeperProcess(const std::deque<ChildStart>& starts, std::vector<Worker>& workers, int command_fd,
                int event_fd, int lock_fd, int64_t stuck_after_ms, const KeeperOwner& owner)
      : starts_(starts),
        workers_(workers),
        command_fd_(command_fd),
        event_fd_(event_fd),
        lock_fd_(lock_fd),
        stuck_after_ms_(stuck_after_ms),
        silent_after_ms_(owner.silent_after == absl::InfiniteDuration()
                             ? -1
                             : absl::ToInt64Milliseconds(owner.silent_after)),
        mark_(DescentMark::Own()),
        name_(owner.name),
        owner_pid_(::getpid()) {
    struct stat now;
    for (const std::string& path : owner.leftovers) {
      if (::lstat(path.c_str(), &now) == 0) leftovers_.push_back({path.c_str(), now.st_dev, now.st_ino});
    }
    if (::lstat(owner.folder.c_str(), &now) == 0) folder_ = {owner.folder.c_str(), now.st_dev, now.st_ino};
  }

  [[noreturn]] void Run() {
    ::setsid();
    mark_.Put();
    ::prctl(PR_SET_NAME, name_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::signal(SIGCHLD, SIG_DFL);  // ignored, as some start programs, the ends of children would be lost
    sigset_t children;
    ::sigemptyset(&children);
    ::sigaddset(&children, SIGCHLD);
    const int signal_fd = ::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    StartWorkers();
    KeepOnly(signal_fd);
    last_word_ms_ = NowMs();
    while (!is_done_) {
      pollfd waits[] = {{is_alone_ ? -1 : command_fd_, POLLIN, 0}, {signal_fd, POLLIN, 0}};
      ::poll(waits, 2, is_killing_ ? kPassMs : PatienceMs());
      signalfd_siginfo info;
      while (::read(signal_fd, &info, sizeof(info)) > 0) {
      }
      const bool has_children = ReapEnded();
      if (waits[0].revents != 0) ReadCommand();
      if (!is_alone_ && PatienceMs() == 0) EndOwner();
      if (is_killing_) KillRound(has_children);
    }
    if (is_alone_) {
      RemoveFolder();
      RemoveLeftovers();
    }
    ::_exit(0);
  }

 private:
  void StartWorkers() {
    for (size_t i = 0; i < starts_.size(); ++i) {
      int error = 0;
      workers_[i].pid = starts_[i].Run(&error);
      workers_[i].ended = workers_[i].pid < 0;
      KeeperEvent event;
      event.kind = workers_[i].ended ? KeeperEvent::Kind::kNotStarted : KeeperEvent::Kind::kStarted;
      event.worker = static_cast<int>(i);
      event.pid = workers_[i].pid;
      event.error = error;
      Tell(event);
    }
  }

  // No socket, pipe or terminal may live on because of this process.
  void KeepOnly(int signal_fd) const {
    int kept[] = {command_fd_, event_fd_, lock_fd_, signal_fd};
    std::sort(std::begin(kept), std::end(kept));
    unsigned next = 0;
    for (const int fd : kept) {
      if (fd < 0) continue;
      if (static_cast<unsigned>(fd) > next) {
        ::syscall(SYS_close_range, next, static_cast<unsigned>(fd - 1), 0U);
      }
      next = static_cast<unsigned>(fd) + 1;
    }
    ::syscall(SYS_close_range, next, ~0U, 0U);
  }

  // False when there is no child at all.
  bool ReapEnded() {
    while (true) {
      siginfo_t info = {};
      const int result = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG);
      if (result != 0 && errno == EINTR) continue;
      if (result != 0) return false;
      if (info.si_pid == 0) return true;
      for (size_t i = 0; i < workers_.size(); ++i) {
        if (workers_[i].ended || workers_[i].pid != info.si_pid) continue;
        workers_[i].ended = true;
        KeeperEvent event;
        event.kind = KeeperEvent::Kind::kExited;
        event.worker = static_cast<int>(i);
        event.pid = info.si_pid;
        event.exit = {info.si_code != CLD_EXITED, info.si_status};
        Tell(event);
      }
    }
  }

  void ReadCommand() {
    Keeper::Command command;
    const ssize_t count = ::recv(command_fd_, &command, sizeof(command), MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    is_alone_ = count != sizeof(command);  // the launcher is gone
    last_word_ms_ = NowMs();
    if (!is_alone_ && command.kind == Keeper::Command::Kind::kBeat) return;
    if (is_alone_ || command.kind == Keeper::Command::Kind::kKillAll) return BeginKilling();
    const Worker& worker = workers_[static_cast<size_t>(command.worker)];
    if (worker.ended) return;
    if (command.kind == Keeper::Command::Kind::kSignalGroup) {
      ::kill(-worker.pid, command.signal_number);
    } else {
      ::syscall(SYS_tgkill, worker.pid, worker.pid, command.signal_number);
    }
  }

  // For poll(2), until the launcher has been silent for too long; -1: it may be for ever.
  int PatienceMs() const {
    if (silent_after_ms_ < 0) return -1;
    return static_cast<int>(std::max<int64_t>(last_word_ms_ + silent_after_ms_ - NowMs(), 0));
  }

  // It is stopped, say, and counted as lost: nothing that it would do when it wakes up is wanted.
  void EndOwner() {
    if (::getppid() == owner_pid_) ::kill(owner_pid_, SIGKILL);
    is_alone_ = true;
    BeginKilling();
  }

  // Nobody has put something else in its place by now.
  static bool IsThere(const Leftover& leftover) {
    struct stat now;
    return leftover.path != nullptr && ::lstat(leftover.path, &now) == 0 && now.st_dev == leftover.device &&
           now.st_ino == leftover.inode;
  }

  void RemoveFolder() const {
    if (!IsThere(folder_)) return;
    int fd = ::open(folder_.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ForEachEntry(
        folder_.path, [](const char* name, void* fd) { ::unlinkat(*static_cast<int*>(fd), name, 0); }, &fd);
    ::close(fd);
    ::rmdir(folder_.path);
  }

  void RemoveLeftovers() const {
    for (const Leftover& leftover : leftovers_) {
      if (!IsThere(leftover)) continue;
      if (::unlink(leftover.path) != 0) ::rmdir(leftover.path);
    }
  }

  void BeginKilling() {
    if (std::exchange(is_killing_, true)) return;
    killing_since_ms_ = NowMs();
  }

  // What ends makes its children this process's, which the next round finds. So the tree ends.
  void KillRound(bool has_children) {
    if (!has_children) {
      KeeperEvent event;
      event.kind = KeeperEvent::Kind::kAllGone;
      Tell(event);
      is_done_ = true;
      return;
    }
    ForEachProcess(
        [](pid_t pid, void*) {
          if (ParentOf(pid) == ::getpid()) ::kill(pid, SIGKILL);
        },
        nullptr);
    if (is_stuck_told_ || NowMs() - killing_since_ms_ < stuck_after_ms_) return;
    is_stuck_told_ = true;
    ForEachProcess(
        [](pid_t pid, void* self) {
          if (ParentOf(pid) == ::getpid()) static_cast<KeeperProcess*>(self)->TellStuck(pid);
        },
        this);
    // What is left can do nothing more, not even when the kernel lets it go: it was killed.
    if (lock_fd_ >= 0) ::close(std::exchange(lock_fd_, -1));
  }

  void TellStuck(pid_t pid) {
    KeeperEvent event;
    event.kind = KeeperEvent::Kind::kStuck;
    event.pid = pid;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (!workers_[i].ended && workers_[i].pid == pid) event.worker = static_cast<int>(i);
    }
    Tell(event);
  }

  void Tell(const KeeperEvent& event) {
    if (is_alone_) return;
    ssize_t count;
    do {
      count = ::write(event_fd_, &event, sizeof(event));
    } while (count < 0 && errno == EINTR);
  }

  static int64_t NowMs() {
    timespec now;
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  }

  const std::deque<ChildStart>& starts_;
  std::vector<Worker>& workers_;
  const int command_fd_;
  const int event_fd_;
  int lock_fd_;
  const int64_t stuck_after_ms_;
  const int64_t silent_after_ms_;  // -1: the launcher may be silent
  std::vector<Leftover> leftovers_;
  Leftover folder_;
  const DescentMark& mark_;
  const char* const name_;
  const pid_t owner_pid_;
  int64_t last_word_ms_ = 0;
  bool is_alone_ = false;
  bool is_killing_ = false;
  bool is_stuck_told_ = false;
  bool is_done_ = false;
  int64_t killing_since_ms_ = 0;
};

}  // namespace

absl::StatusOr<Keeper> Keeper::Start(std::vector<SpawnOptions> workers, int lock_fd,
                                     absl::Duration stuck_after, KeeperOwner owner) {
  std::deque<ChildStart> starts;  // which do not move
  for (SpawnOptions& worker : workers) {
    worker.new_session = true;
    worker.die_with_parent = true;
    starts.emplace_back(std::move(worker));
  }
  std::vector<KeeperProcess::Worker> table(starts.size());
  int commands[2], events[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, commands) != 0) {
    return ErrnoError("create", "a pair of sockets", errno);
  }
  if (::pipe2(events, O_CLOEXEC) != 0) {
    const int error = errno;
    for (const int fd : commands) ::close(fd);
    return ErrnoError("create", "a pipe", error);
  }
  KeeperProcess process(starts, table, commands[1], events[1], lock_fd,
                        absl::ToInt64Milliseconds(stuck_after), owner);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::_Fork();
  if (pid == 0) {
    // Of its own ends alone: only so does it see that the launcher is gone.
    ::close(commands[0]);
    ::close(events[0]);
    process.Run();
  }
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(commands[1]);
  ::close(events[1]);
  if (pid < 0) {
    ::close(commands[0]);
    ::close(events[0]);
    return ErrnoError("start", "the process that supervises the workers", error);
  }
  ::fcntl(events[0], F_SETFL, O_NONBLOCK);
  Keeper keeper;
  keeper.pid_ = pid;
  keeper.command_fd_ = commands[0];
  keeper.event_fd_ = events[0];
  return keeper;
}

Keeper::Keeper(Keeper&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      command_fd_(std::exchange(other.command_fd_, -1)),
      event_fd_(std::exchange(other.event_fd_, -1)),
      is_over_(other.is_over_) {}

Keeper::~Keeper() {
  if (pid_ < 0) return;
  ::close(command_fd_);
  ::close(event_fd_);
  // It may be kept by a process that cannot be ended: then it is left to its work.
  ::waitpid(pid_, nullptr, WNOHANG);
}

std::vector<KeeperEvent> Keeper::Take() {
  std::vector<KeeperEvent> events;
  KeeperEvent event;
  while (!is_over_) {
    const ssize_t count = ::read(event_fd_, &event, sizeof(event));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;  // nothing for now
    if (count != sizeof(event)) event = KeeperEvent();
    events.push_back(event);
    if (event.kind != KeeperEvent::Kind::kAllGone && event.kind != KeeperEvent::Kind::kLost) continue;
    is_over_ = true;
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  return events;
}

void Keeper::Dismiss() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);  // it may be stopped
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  ::close(command_fd_);
  ::close(event_fd_);
}

void Keeper::Signal(int worker, int signal_number) {
  Send({Command::Kind::kSignalGroup, worker, signal_number});
}

void Keeper::SignalMainThread(int worker, int signal_number) {
  Send({Command::Kind::kSignalMainThread, worker, signal_number});
}

void Keeper::Beat() { Send({Command::Kind::kBeat, 0, 0}); }

void Keeper::KillAll() { Send({Command::Kind::kKillAll, 0, 0}); }

void Keeper::Send(const Command& command) {
  (void)!::send(command_fd_, &command, sizeof(command), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace trainctl::launcher
