#include "monitor/metrics_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/network.h"
#include "base/status.h"

namespace trainctl::monitor {
namespace {

constexpr int kBacklog = 64;
constexpr absl::Duration kLongestWait = absl::Hours(1);
constexpr int kPauseMs = 100;  // if no descriptor is left for another connection

absl::Status CannotListen(const std::string& endpoint, int error_number) {
  std::string advice = "; give an address and a port of this machine";
  if (error_number == EADDRINUSE) {
    advice =
        "; another process, perhaps another run, listens there. Choose another port, or port 0 for a free "
        "one";
  } else if (error_number == EADDRNOTAVAIL) {
    advice = "; this is not an address of this machine. Use one that is, or 0.0.0.0 for all of them";
  } else if (error_number == EACCES) {
    advice = "; ports below 1024 are for root. Choose another one";
  }
  return EnvironmentError(absl::StrCat("metrics.prometheus: cannot listen on ", endpoint, ": ",
                                       std::strerror(error_number), advice));
}

// Listens on the first address that the name resolves to.
absl::StatusOr<int> ListenOn(const std::string& text, const Endpoint& endpoint) {
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(endpoint.host.c_str(), absl::StrCat(endpoint.port).c_str(), &hints, &found);
  if (error != 0) {
    return EnvironmentError(absl::StrCat("metrics.prometheus: cannot listen on ", text, ": ", endpoint.host,
                                         ": ", ::gai_strerror(error), "; give an address of this machine"));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &::freeaddrinfo);
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return CannotListen(text, errno);
  const int on = 1;
  // Connections of the previous launch may have used the port a moment ago.
  if (endpoint.port != 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd, found->ai_addr, found->ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const int error_number = errno;
  ::close(fd);
  return CannotListen(text, error_number);
}

int PortOf(int fd) {
  sockaddr_storage bound = {};
  socklen_t num_bytes = sizeof(bound);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &num_bytes) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Listen(const std::string& endpoint) {
  return Listen(endpoint, Limits());
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Listen(const std::string& endpoint,
                                                                     const Limits& limits) {
  TRAINCTL_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint, /*least_port=*/0));
  TRAINCTL_ASSIGN_OR_RETURN(const int fd, ListenOn(endpoint, parsed));
  std::string url = absl::StrCat("http://", FormatEndpoint(parsed.host, PortOf(fd)), kMetricsPath);
  return std::unique_ptr<MetricsServer>(new MetricsServer(fd, std::move(url), limits));
}

MetricsServer::MetricsServer(int listener, std::string url, const Limits& limits)
    : limits_(limits),
      listener_(listener),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      url_(std::move(url)) {
  TRAINCTL_CHECK(wake_fd_ >= 0);
}

MetricsServer::~MetricsServer() {
  if (thread_.joinable()) {
    is_closing_ = true;
    const uint64_t one = 1;
    (void)!::write(wake_fd_, &one, sizeof(one));
    thread_.join();
  }
  for (const Connection& connection : connections_) ::close(connection.fd);
  ::close(listener_);
  ::close(wake_fd_);
}

void MetricsServer::Serve(CollectMetrics collect) {
  collect_ = std::move(collect);
  thread_ = std::thread([this] { Run(); });
}

void MetricsServer::Run() {
  while (!is_closing_) {
    std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Connection& connection : connections_) {
      const short wanted = connection.answer.empty() ? POLLIN : POLLOUT;
      fds.push_back({connection.fd, wanted, 0});
    }
    int wait_ms = -1;
    if (!connections_.empty()) {
      const absl::Duration left = connections_.front().since + limits_.patience - clock_.Monotonic();
      wait_ms =
          static_cast<int>(absl::ToInt64Milliseconds(std::clamp(left, absl::ZeroDuration(), kLongestWait))) +
          1;
    }
    ::poll(fds.data(), fds.size(), wait_ms);
    auto next = connections_.begin();
    for (size_t i = 2; i < fds.size(); ++i) {
      const auto connection = next++;
      if (fds[i].revents == 0 || Advance(*connection)) continue;
      ::close(connection->fd);
      connections_.erase(connection);
    }
    EndOverdue();
    if (fds[1].revents != 0) Accept();
  }
}

void MetricsServer::Accept() {
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    // The connection stays in the queue, and poll(2) would return at once.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      pollfd wake = {wake_fd_, POLLIN, 0};
      ::poll(&wake, 1, kPauseMs);
    }
    return;
  }
  if (connections_.size() >= limits_.max_connections) {
    ::close(connections_.front().fd);
    connections_.pop_front();
  }
  connections_.push_back({.fd = fd, .since = clock_.Monotonic()});
}

bool MetricsServer::Advance(Connection& connection) {
  if (connection.answer.empty()) {
    char buffer[2048];
    const ssize_t count = ::recv(connection.fd, buffer, sizeof(buffer), 0);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    connection.request.append(buffer, static_cast<size_t>(count));
    if (absl::StrContains(connection.request, "\r\n\r\n")) {
      connection.answer = AnswerMetricsRequest(connection.request, collect_);
    } else if (connection.request.size() > limits_.max_request_bytes) {
      connection.answer = AnswerTooLongRequest();
    } else {
      return true;
    }
  }
  const ssize_t sent =
      ::send(connection.fd, connection.answer.data(), connection.answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection.answer.erase(0, static_cast<size_t>(sent));
  return !connection.answer.empty();
}

void MetricsServer::EndOverdue() {
  const absl::Duration now = clock_.Monotonic();
  while (!connections_.empty() && now - connections_.front().since > limits_.patience) {
    ::close(connections_.front().fd);
    connections_.pop_front();
  }
}

}  // namespace trainctl::monitor
