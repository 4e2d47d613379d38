#include "rpc/connection_gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/files.h"
#include "base/network.h"
#include "base/status.h"
#include "base/unix_socket.h"
#include "rpc/tls.h"

namespace trainctl::rpc {
namespace {

constexpr int kBacklog = 1024;
constexpr int kKeptDescriptors = 256;
constexpr int kAcceptedAtOnce = 64;  // then others are looked at
constexpr int kPauseMs = 100;        // if no descriptor is left for another connection

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t num_bytes = 0;
};

bool ParseAddress(const std::string& text, int port, SocketAddress& address) {
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    address.num_bytes = sizeof(*v4);
    return true;
  }
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) != 1) return false;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(static_cast<uint16_t>(port));
  address.num_bytes = sizeof(*v6);
  return true;
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string HostOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* const bytes =
      address.ss_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  ::inet_ntop(address.ss_family, bytes, text, sizeof(text));
  return text;
}

uint64_t InodeOf(int fd) {
  struct stat info;
  return ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

// The network whose connections count together: the address itself or, for IPv6, its /64, because one machine
// may own all of a /64.
std::string NetworkPrefixOf(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET6) return HostOf(address);
  sockaddr_storage network = address;
  std::memset(&reinterpret_cast<sockaddr_in6&>(network).sin6_addr.s6_addr[8], 0, 8);
  return absl::StrCat(HostOf(network), "/64");
}

// 0: there is none.
ino_t FolderOf(const std::string& path) {
  struct stat info;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return ::stat(folder.empty() ? "." : folder.c_str(), &info) == 0 ? info.st_ino : 0;
}

// The port, or -1.
int ListenOn(const SocketAddress& address, int* listener) {
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  // A port that is given may have had connections a moment ago, of the launcher before.
  if (PortOf(address.storage) != 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.storage.ss_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  sockaddr_storage bound = {};
  socklen_t num_bytes = sizeof(bound);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.num_bytes) != 0 ||
      ::listen(fd, kBacklog) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &num_bytes) != 0) {
    ::close(fd);
    return -1;
  }
  *listener = fd;
  return PortOf(bound);
}

int KeptDescriptors(int times) {
  rlimit files;
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= (rlim_t{1} << 30)) {
    return std::numeric_limits<int>::max();
  }
  const int most = static_cast<int>(files.rlim_cur);
  return most - times * std::min(kKeptDescriptors, most / 4);
}

// Converts gRPC's name of a peer to "10.0.0.1:4711" or "[fd00::1]:4711". gRPC's address may include an
// interface, such as "%25eth0"; our endpoints do not.
std::string EndpointOfPeer(absl::string_view peer) {
  const std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text.substr(text.find(':') + 1));
  if (!endpoint.ok()) return "";
  return FormatEndpoint(endpoint->host.substr(0, endpoint->host.find('%')), endpoint->port);
}

}  // namespace

ConnectionGate::Limits ConnectionGate::LimitsOfPort() {
  Limits limits{.patience = kHandshakeTimeout, .first_kept_fd = KeptDescriptors(2)};
  limits.max_connections = std::min(limits.max_connections, static_cast<size_t>(limits.first_kept_fd / 2));
  return limits;
}

ConnectionGate::Limits ConnectionGate::LimitsOfSocket() { return {.first_kept_fd = KeptDescriptors(1)}; }

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Listen(
    absl::Span<const std::string> addresses, int wanted_port, std::string what, const Limits& limits,
    RefusalLog* refusals) {
  auto gate = std::unique_ptr<ConnectionGate>(new ConnectionGate(limits, refusals, std::move(what)));
  for (const std::string& text : addresses) {
    SocketAddress address;
    int listener = -1;
    if (!ParseAddress(text, wanted_port, address)) continue;
    const int port = ListenOn(address, &listener);
    if (port < 0) continue;
    gate->listeners_.push_back(listener);
    gate->endpoints_.push_back(FormatEndpoint(text, port));
  }
  if (limits.max_bytes_in > 0) {
    TRAINCTL_ASSIGN_OR_RETURN(gate->relay_, MeteredRelay::Start(limits.max_bytes_in));
  }
  TRAINCTL_RETURN_IF_ERROR(gate->MakeWakeFd());
  return gate;
}

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::ListenAt(const std::string& path,
                                                                         const Limits& limits,
                                                                         RefusalLog* refusals) {
  auto gate = std::unique_ptr<ConnectionGate>(new ConnectionGate(limits, refusals, "the control socket"));
  struct stat left;
  if (::lstat(path.c_str(), &left) == 0 && S_ISSOCK(left.st_mode)) ::unlink(path.c_str());
  TRAINCTL_RETURN_IF_ERROR(gate->ListenAtPath(path));
  gate->path_ = path;
  gate->folder_ = FolderOf(path);
  TRAINCTL_RETURN_IF_ERROR(gate->MakeWakeFd());
  return gate;
}

absl::Status ConnectionGate::ListenAtPath(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const int listener, BindPrivateSocket(path));
  if (::listen(listener, kBacklog) != 0) {
    const int error = errno;
    ::close(listener);
    return ErrnoError("listen on the control socket", path, error);
  }
  std::lock_guard lock(mutex_);
  listeners_.push_back(listener);
  return absl::OkStatus();
}

absl::Status ConnectionGate::RestoreSocket() {
  struct stat found;
  if (::lstat(path_.c_str(), &found) == 0 || errno != ENOENT || FolderOf(path_) != folder_) {
    return absl::OkStatus();
  }
  TRAINCTL_RETURN_IF_ERROR(ListenAtPath(path_));
  Wake();
  return absl::OkStatus();
}

absl::Status ConnectionGate::MakeWakeFd() {
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return wake_fd_ < 0 ? ErrnoError("create", "an event descriptor", errno) : absl::OkStatus();
}

void ConnectionGate::Wake() {
  const uint64_t one = 1;
  (void)!::write(wake_fd_, &one, sizeof(one));
}

void ConnectionGate::Close() {
  if (!thread_.joinable()) return;
  is_closing_ = true;
  Wake();
  thread_.join();
  acceptor_.reset();
}

ConnectionGate::~ConnectionGate() {
  Close();
  if (!path_.empty()) ::unlink(path_.c_str());
  for (const int listener : listeners_) ::close(listener);
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

void ConnectionGate::Open(std::unique_ptr<Acceptor> acceptor) {
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionGate::Run() {
  while (!is_closing_) {
    std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
    {
      std::lock_guard lock(mutex_);
      for (const int listener : listeners_) fds.push_back({listener, POLLIN, 0});
    }
    ::poll(fds.data(), fds.size(), NextLookMs());
    uint64_t count = 0;
    (void)!::read(wake_fd_, &count, sizeof(count));
    EndOverdue();
    for (size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      for (int n = 0; n < kAcceptedAtOnce && Accept(fds[i].fd); ++n) continue;
    }
  }
}

bool ConnectionGate::Accept(int listener) {
  sockaddr_storage peer = {};
  socklen_t num_bytes = sizeof(peer);
  int fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &num_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    // The connection stays in the queue, and poll(2) would return at once.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      pollfd wake = {wake_fd_, POLLIN, 0};
      ::poll(&wake, 1, kPauseMs);
    }
    return false;
  }
  Connection connection{.since = clock_.Monotonic()};
  if (path_.empty()) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    connection.host = NetworkPrefixOf(peer);
    connection.endpoint = FormatEndpoint(HostOf(peer), PortOf(peer));
    if (relay_ != nullptr) fd = relay_->Add(fd);
    if (fd < 0) return true;
  } else if (!IsOfUser(fd, connection)) {
    ::close(fd);
    return true;
  }
  connection.fd = fd;
  connection.inode = InodeOf(fd);
  if (!Admit(connection)) {
    ::close(fd);
    return true;
  }
  Acceptor::NewConnectionParameters accepted;
  accepted.listener_fd = listener;
  accepted.fd = fd;
  acceptor_->HandleNewConnection(&accepted);
  return true;
}

bool ConnectionGate::IsOfUser(int fd, Connection& connection) {
  ucred peer = {};
  socklen_t num_bytes = sizeof(peer);
  const bool is_known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &num_bytes) == 0;
  connection.host = is_known ? absl::StrCat("user ", peer.uid) : "an unknown user";
  if (is_known && (peer.uid == ::geteuid() || peer.uid == 0)) return true;
  refusals_->Add(RefusalLog::Kind::kUser,
                 absl::StrCat("a connection to the control socket from ", connection.host, " was refused"));
  return false;
}

bool ConnectionGate::Admit(const Connection& connection) {
  const auto refuse = [&](absl::string_view whose, absl::string_view what) {
    refusals_->Add(RefusalLog::Kind::kConnection,
                   absl::StrCat("too many connections to ", what_, "; one from ", whose, " was ", what));
  };
  std::lock_guard lock(mutex_);
  // The kernel assigns the lowest free number, so all lower descriptors are in use.
  if (connection.fd >= limits_.first_kept_fd) {
    refuse(connection.host, "refused");
    return false;
  }
  if (connections_.size() >= limits_.max_connections) ForgetClosed();
  if (connections_.size() >= limits_.max_connections) {
    if (!path_.empty()) {
      refuse(connection.host, "refused");
      return false;
    }
    const auto oldest = connections_.begin() + static_cast<ptrdiff_t>(OldestOfTheMost());
    refuse(oldest->host, "ended");
    End(*oldest);
    connections_.erase(oldest);
  }
  connections_.push_back(connection);
  return true;
}

void ConnectionGate::Welcome(absl::string_view peer) {
  const std::string endpoint = EndpointOfPeer(peer);
  std::lock_guard lock(mutex_);
  std::erase_if(connections_, [&](const Connection& each) { return each.endpoint == endpoint; });
}

int ConnectionGate::NextLookMs() {
  std::lock_guard lock(mutex_);
  if (connections_.empty() || limits_.patience == absl::InfiniteDuration()) return -1;
  const absl::Duration left = connections_.front().since + limits_.patience - clock_.Monotonic();
  return static_cast<int>(absl::ToInt64Milliseconds(std::max(left, absl::ZeroDuration()))) + 1;
}

void ConnectionGate::EndOverdue() {
  std::lock_guard lock(mutex_);
  const absl::Duration now = clock_.Monotonic();
  while (!connections_.empty() && now - connections_.front().since > limits_.patience) {
    End(connections_.front());
    connections_.pop_front();
  }
}

void ConnectionGate::ForgetClosed() {
  std::erase_if(connections_, [](const Connection& each) { return InodeOf(each.fd) != each.inode; });
}

size_t ConnectionGate::OldestOfTheMost() const {
  std::map<absl::string_view, std::pair<size_t, size_t>> hosts;  // how many, and the oldest
  for (size_t i = 0; i < connections_.size(); ++i) {
    const auto [it, is_new] = hosts.try_emplace(connections_[i].host, 0, i);
    ++it->second.first;
  }
  const auto most = std::max_element(hosts.begin(), hosts.end(), [](const auto& a, const auto& b) {
    const auto& [count_a, oldest_a] = a.second;
    const auto& [count_b, oldest_b] = b.second;
    return count_a != count_b ? count_a < count_b : oldest_a > oldest_b;
  });
  return most->second.second;
}

// gRPC may close the descriptor at any moment, and its number may then refer to another file. Only this
// function can close the copy.
void ConnectionGate::End(const Connection& connection) {
  const int copy = ::fcntl(connection.fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return;
  if (InodeOf(copy) == connection.inode) ::shutdown(copy, SHUT_RDWR);
  ::close(copy);
}

}  // namespace trainctl::rpc
