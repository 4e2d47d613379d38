// Internal to lib/rpc: accepts connections for a gRPC server, over TCP or on a Unix socket, and limits their
// number to protect this process. On its own, gRPC accepts an unlimited number of connections, and once it
// runs out of file descriptors it never accepts another. Thread-safe.
#pragma once

#include <grpcpp/server_builder.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "rpc/grpc_log.h"
#include "rpc/metered_relay.h"

namespace trainctl::rpc {

class ConnectionGate {
 public:
  struct Limits {
    // Maximum number of simultaneous connections. Over TCP, only connections that have not been welcomed
    // count, and a connection over the limit ends the oldest one of the address (for IPv6, of the /64) that
    // has the most connections. On a Unix socket, all connections count, and a connection over the limit is
    // refused.
    size_t max_connections = 512;
    // How long a TCP connection may exist without being welcomed.
    absl::Duration patience = absl::InfiniteDuration();
    // Maximum number of bytes that a client may send over one TCP connection; 0 for no limit.
    int64_t max_bytes_in = 0;
    // Connections may only use file descriptors below this number; the rest are reserved for other files.
    int first_kept_fd = 0;
  };
  // Returns limits that reserve a quarter of RLIMIT_NOFILE, at most 256 descriptors, for the launcher's own
  // files. LimitsOfPort reserves the same number again for the Unix socket, so strangers at the port cannot
  // block `trainctl stop`.
  static Limits LimitsOfPort();
  static Limits LimitsOfSocket();

  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Listens on `port` at each address, or on a free port if it is 0. Skips addresses at which it cannot
  // listen. `what` names the port in messages, for example "the agents' port".
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Listen(absl::Span<const std::string> addresses,
                                                                int port, std::string what,
                                                                const Limits& limits, RefusalLog* refusals);
  // Listens on a Unix socket with mode 0600 at `path`, and admits only processes of this user and of root.
  // Replaces a leftover socket, and removes the new one on destruction. Returns EnvironmentError if it cannot
  // listen.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> ListenAt(const std::string& path,
                                                                  const Limits& limits, RefusalLog* refusals);
  ~ConnectionGate();

  const std::vector<std::string>& endpoints() const { return endpoints_; }  // "host:port"
  // Starts passing connections to the server, until Close. Call this once.
  void Open(std::unique_ptr<Acceptor> acceptor);
  // Recreates the Unix socket if its file was removed, for example by a program that cleans up /tmp. Does
  // nothing if the folder is gone or was replaced. Returns EnvironmentError if it cannot listen.
  absl::Status RestoreSocket();
  // Stops accepting connections; existing ones stay open. Idempotent.
  void Close();
  // Exempts a TCP connection from the limits, because its caller has been identified. `peer` is gRPC's name
  // for the connection, for example "ipv4:10.0.0.1:4711" or "ipv6:%5Bfd00::1%5D:4711".
  void Welcome(absl::string_view peer);

 private:
  struct Connection {
    int fd = -1;
    uint64_t inode = 0;    // inode of the socket, which shows whether `fd` still refers to it
    std::string host;      // peer's address, or "user 1000" on a Unix socket
    std::string endpoint;  // "host:port"; empty for a Unix socket
    absl::Duration since;
  };

  ConnectionGate(const Limits& limits, RefusalLog* refusals, std::string what)
      : limits_(limits), refusals_(refusals), what_(std::move(what)) {}
  absl::Status MakeWakeFd();
  void Wake();
  absl::Status ListenAtPath(const std::string& path);
  void Run();
  // Accepts one connection. Returns true if more may be pending.
  bool Accept(int listener);
  // Returns whether the peer is a process of this user or of root. If not, logs the refusal.
  bool IsOfUser(int fd, Connection& connection);
  // Makes room for the connection and returns true, or refuses it.
  bool Admit(const Connection& connection);
  void EndOverdue();
  // Returns the poll(2) timeout, in milliseconds, until the next connection is overdue.
  int NextLookMs();
  // The following functions require that mutex_ is held.
  void ForgetClosed();
  size_t OldestOfTheMost() const;
  // Ends the connection if it is still open.
  static void End(const Connection& connection);

  const Limits limits_;
  RefusalLog* const refusals_;
  const std::string what_;  // name of the port in messages, such as "the agents' port"
  std::string path_;        // path of the Unix socket once it exists
  ino_t folder_ = 0;        // inode of the folder that contains it
  std::vector<std::string> endpoints_;
  int wake_fd_ = -1;
  std::atomic<bool> is_closing_{false};
  std::unique_ptr<MeteredRelay> relay_;  // set if the number of bytes is limited
  std::unique_ptr<Acceptor> acceptor_;
  const RealClock clock_;
  std::mutex mutex_;
  std::vector<int> listeners_;
  std::deque<Connection> connections_;  // oldest first; some may be closed
  std::thread thread_;
};

}  // namespace trainctl::rpc
