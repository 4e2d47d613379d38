// Internal to lib/rpc: accepts connections for a gRPC server, over TCP or at a Unix socket, and no more than
// this process can bear. gRPC itself accepts connections from anyone, and stops accepting permanently once it
// has run out of file descriptors. Thread safe.
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
    // count. One more ends the oldest connection of the address (for IPv6, the /64) that has the most. On a
    // Unix socket, all connections count, and one more is refused.
    size_t max_connections = 512;
    // A TCP connection that has not been welcomed by then is ended.
    absl::Duration patience = absl::InfiniteDuration();
    // Maximum number of bytes that a client may send over one TCP connection; 0 if there is no maximum.
    int64_t max_bytes_in = 0;
    // Connections only get descriptors with numbers below this one.
    int first_kept_fd = 0;
  };
  // Limits that reserve a quarter of RLIMIT_NOFILE, at most 256 descriptors, for the launcher's own files.
  // They reserve as many again for the Unix socket only, so strangers at the port cannot block `trainctl
  // stop`.
  static Limits LimitsOfPort();
  static Limits LimitsOfSocket();

  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Listens on this port of each address, 0: a free one; addresses that it cannot listen on are left out.
  // `what` is for messages: "the agents' port".
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Listen(absl::Span<const std::string> addresses,
                                                                int port, std::string what,
                                                                const Limits& limits, RefusalLog* refusals);
  // Listens at this path, with mode 0600, and lets in processes of this user and of root. A socket that was
  // left there is replaced, and the new one is removed at the end. EnvironmentError if it cannot listen.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> ListenAt(const std::string& path,
                                                                  const Limits& limits, RefusalLog* refusals);
  ~ConnectionGate();

  const std::vector<std::string>& endpoints() const { return endpoints_; }  // "host:port"
  // Hands connections to the server, until closed. Once.
  void Open(std::unique_ptr<Acceptor> acceptor);
  // Listens at the path of the Unix socket again if somebody has removed the file, such as a program that
  // cleans up /tmp. Nothing if the folder is gone or another one has its name. EnvironmentError if it cannot.
  absl::Status RestoreSocket();
  // Accepts no more; connections that the server has stay. Idempotent.
  void Close();
  // The caller at the other end of a TCP connection has shown who it is: the limits no longer apply to it.
  // `peer` is what gRPC calls it: "ipv4:10.0.0.1:4711", "ipv6:%5Bfd00::1%5D:4711".
  void Welcome(absl::string_view peer);

 private:
  struct Connection {
    int fd = -1;
    uint64_t inode = 0;    // of the socket, which shows whether the descriptor still belongs to it
    std::string host;      // of a Unix socket: "user 1000"
    std::string endpoint;  // "host:port", empty for a Unix socket
    absl::Duration since;
  };

  ConnectionGate(const Limits& limits, RefusalLog* refusals, std::string what)
      : limits_(limits), refusals_(refusals), what_(std::move(what)) {}
  absl::Status MakeWakeFd();
  void Wake();
  absl::Status ListenAtPath(const std::string& path);
  void Run();
  // Returns whether there may be another connection to accept.
  bool Accept(int listener);
  // Returns whether a process of this user or of root is at the other end; logs the refusal if not.
  bool IsOfUser(int fd, Connection& connection);
  // Makes room for one more, or turns it away.
  bool Admit(const Connection& connection);
  void EndOverdue();
  // Time until the next connection is overdue, in the form that poll(2) takes.
  int NextLookMs();
  // They require mutex_.
  void ForgetClosed();
  size_t OldestOfTheMost() const;
  // Ends the connection unless it is closed already.
  static void End(const Connection& connection);

  const Limits limits_;
  RefusalLog* const refusals_;
  const std::string what_;  // for messages: "the agents' port"
  std::string path_;        // of a Unix socket, once it is there
  ino_t folder_ = 0;        // in which it is
  std::vector<std::string> endpoints_;
  int wake_fd_ = -1;
  std::atomic<bool> is_closing_{false};
  std::unique_ptr<MeteredRelay> relay_;  // if bytes are limited
  std::unique_ptr<Acceptor> acceptor_;
  const RealClock clock_;
  std::mutex mutex_;
  std::vector<int> listeners_;
  std::deque<Connection> connections_;  // in the order in which they came; some are closed by now
  std::thread thread_;
};

}  // namespace trainctl::rpc
