#include "rpc/metered_relay.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/files.h"

namespace trainctl::rpc {
namespace {

constexpr size_t kPieceBytes = 16 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<MeteredRelay>> MeteredRelay::Start(int64_t max_bytes) {
  auto relay = std::unique_ptr<MeteredRelay>(new MeteredRelay(max_bytes));
  relay->wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (relay->wake_fd_ < 0) return ErrnoError("create", "an event descriptor", errno);
  relay->thread_ = std::thread([self = relay.get()] { self->Run(); });
  return relay;
}

MeteredRelay::~MeteredRelay() {
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      is_closing_ = true;
    }
    const uint64_t one = 1;
    (void)!::write(wake_fd_, &one, sizeof(one));
    thread_.join();
  }
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

int MeteredRelay::Add(int client) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    ::close(client);
    return -1;
  }
  {
    std::lock_guard lock(mutex_);
    added_.push_back(
        {.in = {.from = client, .to = ends[0], .waiting = {}, .left = max_bytes_},
         .out = {.from = ends[0], .to = client, .waiting = {}, .left = std::numeric_limits<int64_t>::max()}});
  }
  const uint64_t one = 1;
  (void)!::write(wake_fd_, &one, sizeof(one));
  return ends[1];
}

void MeteredRelay::Run() {
  std::vector<Pair> pairs;
  std::vector<pollfd> fds;
  while (true) {
    fds = {{wake_fd_, POLLIN, 0}};
    const auto wanted = [](const Pipe& reads, const Pipe& writes) {
      return static_cast<short>((reads.waiting.empty() ? POLLIN : 0) |
                                (writes.waiting.empty() ? 0 : POLLOUT));
    };
    for (const Pair& pair : pairs) {
      fds.push_back({pair.in.from, wanted(pair.in, pair.out), 0});
      fds.push_back({pair.out.from, wanted(pair.out, pair.in), 0});
    }
    ::poll(fds.data(), fds.size(), -1);
    for (size_t i = pairs.size(); i-- > 0;) {
      const short events = static_cast<short>(fds[1 + 2 * i].revents | fds[2 + 2 * i].revents);
      if (events == 0) continue;
      const bool can_go_on = Move(pairs[i].in) && Move(pairs[i].out);
      // An end that has hung up reads nothing more. Data that the client has not taken by now is dropped.
      if (can_go_on && (events & (POLLHUP | POLLERR)) == 0) continue;
      Close(pairs[i]);
      pairs.erase(pairs.begin() + static_cast<ptrdiff_t>(i));
    }
    uint64_t count = 0;
    (void)!::read(wake_fd_, &count, sizeof(count));
    std::lock_guard lock(mutex_);
    pairs.insert(pairs.end(), added_.begin(), added_.end());
    added_.clear();
    if (!is_closing_) continue;
    for (const Pair& pair : pairs) Close(pair);
    return;
  }
}

bool MeteredRelay::Move(Pipe& pipe) {
  while (true) {
    while (!pipe.waiting.empty()) {
      const ssize_t written = ::send(pipe.to, pipe.waiting.data(), pipe.waiting.size(), MSG_NOSIGNAL);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      pipe.waiting.erase(pipe.waiting.begin(), pipe.waiting.begin() + written);
    }
    std::array<char, kPieceBytes> piece;
    const ssize_t count = ::recv(pipe.from, piece.data(), piece.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (count == 0) return false;
    pipe.left -= count;
    if (pipe.left < 0) return false;
    pipe.waiting.assign(piece.begin(), piece.begin() + count);
  }
}

void MeteredRelay::Close(const Pair& pair) {
  ::close(pair.in.from);
  ::close(pair.in.to);
}

}  // namespace trainctl::rpc
