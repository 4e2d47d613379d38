#include "launcher/signal_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/files.h"
#include "base/status.h"

namespace trainctl::launcher {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
std::atomic<int> g_write_fd{-1};  // a handler has no other way to find it

void OnSignal(int signal_number) {
  const int saved_errno = errno;
  const char byte = static_cast<char>(signal_number);
  (void)!::write(g_write_fd, &byte, 1);
  errno = saved_errno;
}

}  // namespace

bool IsKeptOut(int signal_number, const struct sigaction& former) {
  const bool may_be = signal_number == SIGHUP || signal_number == SIGUSR1 || signal_number == SIGUSR2;
  return may_be && former.sa_handler == SIG_IGN;
}

absl::StatusOr<SignalPipe> SignalPipe::Install() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) return ErrnoError("create", "a pipe", errno);
  SignalPipe pipe;
  pipe.read_fd_ = fds[0];
  pipe.write_fd_ = fds[1];
  TRAINCTL_CHECK(g_write_fd.exchange(fds[1]) == -1);
  struct sigaction action = {};
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    action.sa_handler = kSignals[i] == SIGPIPE ? SIG_IGN : &OnSignal;
    ::sigaction(kSignals[i], &action, &pipe.former_[i]);
    if (IsKeptOut(kSignals[i], pipe.former_[i])) ::sigaction(kSignals[i], &pipe.former_[i], nullptr);
  }
  return pipe;
}

SignalPipe::SignalPipe(SignalPipe&& other) noexcept
    : read_fd_(std::exchange(other.read_fd_, -1)),
      write_fd_(std::exchange(other.write_fd_, -1)),
      former_(other.former_) {}

SignalPipe::~SignalPipe() {
  if (read_fd_ < 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &former_[i], nullptr);
  g_write_fd = -1;
  ::close(read_fd_);
  ::close(write_fd_);
}

bool SignalPipe::HasAny() const {
  pollfd wait = {read_fd_, POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

std::vector<int> SignalPipe::Take() {
  std::vector<int> signals;
  char bytes[64];
  ssize_t count;
  while ((count = ::read(read_fd_, bytes, sizeof(bytes))) > 0)
    signals.insert(signals.end(), bytes, bytes + count);
  return signals;
}

}  // namespace trainctl::launcher
