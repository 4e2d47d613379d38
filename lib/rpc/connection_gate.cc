#include "rpc/connection_gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/network.h"
#include "base/status.h"

namespace trainctl::rpc {
namespace {

constexpr int kBacklog = 1024;
constexpr int kKeptDescriptors = 256;
constexpr int kPauseMs = 100;  // when there is no descriptor to accept with

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

// The file has mode 0600 from the moment that it is there. umask(2) would do that to every thread's files;
// Linux gives the file the mode that the descriptor has, less the umask. The second chmod is for an umask
// that takes even the user's own bits, and for kernels that ignore the first: nobody can connect before
// listen(2).
bool ListenPrivately(int fd, const sockaddr_un& address) {
  return ::fchmod(fd, 0600) == 0 &&
         ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
         ::chmod(address.sun_path, 0600) == 0 && ::listen(fd, kBacklog) == 0;
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

}  // namespace

ConnectionGate::Limits ConnectionGate::DefaultLimits() {
  Limits limits;
  limits.first_kept_fd = std::numeric_limits<int>::max();
  rlimit files;
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < (rlim_t{1} << 30)) {
    const int most = static_cast<int>(files.rlim_cur);
    limits.first_kept_fd = most - std::min(kKeptDescriptors, most / 2);
  }
  return limits;
}

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Listen(
    absl::Span<const std::string> addresses, int wanted_port, const Limits& limits, RefusalLog* refusals) {
  auto gate = std::unique_ptr<ConnectionGate>(new ConnectionGate(limits, refusals, "the agents' port"));
  for (const std::string& text : addresses) {
    SocketAddress address;
    int listener = -1;
    if (!ParseAddress(text, wanted_port, address)) continue;
    const int port = ListenOn(address, &listener);
    if (port < 0) continue;
    gate->listeners_.push_back(listener);
    gate->endpoints_.push_back(FormatEndpoint(text, port));
  }
  TRAINCTL_RETURN_IF_ERROR(gate->MakeStopFd());
  return gate;
}

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::ListenAt(const std::string& path,
                                                                         const Limits& limits,
                                                                         RefusalLog* refusals) {
  auto gate = std::unique_ptr<ConnectionGate>(new ConnectionGate(limits, refusals, "the control socket"));
  sockaddr_un address = {};
  if (path.size() >= sizeof(address.sun_path)) {
    return EnvironmentError(absl::StrCat("the path of the control socket is too long: ", path));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  struct stat left;
  if (::lstat(path.c_str(), &left) == 0 && S_ISSOCK(left.st_mode)) ::unlink(path.c_str());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener < 0) return ErrnoError("create", "the control socket", errno);
  gate->listeners_.push_back(listener);
  if (!ListenPrivately(listener, address)) return ErrnoError("listen on the control socket", path, errno);
  gate->path_ = path;
  TRAINCTL_RETURN_IF_ERROR(gate->MakeStopFd());
  return gate;
}

absl::Status ConnectionGate::MakeStopFd() {
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return stop_fd_ < 0 ? ErrnoError("create", "an event descriptor", errno) : absl::OkStatus();
}

ConnectionGate::~ConnectionGate() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!::write(stop_fd_, &one, sizeof(one));
    thread_.join();
  }
  if (!path_.empty()) ::unlink(path_.c_str());
  for (const int listener : listeners_) ::close(listener);
  if (stop_fd_ >= 0) ::close(stop_fd_);
}

void ConnectionGate::Open(std::unique_ptr<Acceptor> acceptor) {
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionGate::Run() {
  std::vector<pollfd> fds = {{stop_fd_, POLLIN, 0}};
  for (const int listener : listeners_) fds.push_back({listener, POLLIN, 0});
  while (true) {
    ::poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) return;
    for (size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents != 0) Accept(fds[i].fd);
    }
  }
}

void ConnectionGate::Accept(int listener) {
  sockaddr_storage peer = {};
  socklen_t num_bytes = sizeof(peer);
  const int fd =
      ::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &num_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    // It stays in the queue, and poll(2) would return at once.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      pollfd stop = {stop_fd_, POLLIN, 0};
      ::poll(&stop, 1, kPauseMs);
    }
    return;
  }
  const std::string from = PeerOf(fd, peer);
  if (from.empty() || !Admit(fd, from)) {
    ::close(fd);
    return;
  }
  Acceptor::NewConnectionParameters connection;
  connection.listener_fd = listener;
  connection.fd = fd;
  acceptor_->HandleNewConnection(&connection);
}

std::string ConnectionGate::PeerOf(int fd, const sockaddr_storage& address) {
  if (path_.empty()) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return HostOf(address);
  }
  ucred peer = {};
  socklen_t num_bytes = sizeof(peer);
  const bool is_known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &num_bytes) == 0;
  if (is_known && (peer.uid == ::geteuid() || peer.uid == 0)) return absl::StrCat("user ", peer.uid);
  refusals_->Add(RefusalLog::Kind::kUser,
                 absl::StrCat("a connection to the control socket was refused: it is of user ",
                              is_known ? absl::StrCat(peer.uid) : "unknown"));
  return "";
}

bool ConnectionGate::Admit(int fd, const std::string& peer) {
  std::deque<Connection>& connections = connections_[peer];
  if (connections.size() >= limits_.per_address) {
    std::erase_if(connections, [](const Connection& each) { return InodeOf(each.fd) != each.inode; });
  }
  // The lowest free number is the next one: so many are open.
  if (fd >= limits_.first_kept_fd || connections.size() >= limits_.per_address) {
    refusals_->Add(RefusalLog::Kind::kConnection,
                   absl::StrCat("too many connections to ", what_, "; one from ", peer, " was refused"));
    return false;
  }
  connections.push_back({fd, InodeOf(fd)});
  return true;
}

}  // namespace trainctl::rpc
