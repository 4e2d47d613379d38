// Internal to lib/rpc: accepts connections for a gRPC server, over TCP or at a Unix socket, and as many as
// this process can bear. gRPC itself takes all that come, whoever they are, and once there is no file
// descriptor left for one it never accepts another. Thread safe.
#pragma once

#include <grpcpp/server_builder.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rpc/grpc_log.h"

namespace trainctl::rpc {

class ConnectionGate {
 public:
  struct Limits {
    // Connections from one address, or of one user: the agents of a node, of this machine in tests, the
    // workers of a node, and a few that are on their way out.
    size_t per_address = 512;
    // No connection gets a descriptor with a number from here on: the rest is for the launcher's own files.
    int first_kept_fd = 0;
  };
  // Of RLIMIT_NOFILE it keeps 256, or half if there are fewer than 512.
  static Limits DefaultLimits();

  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Listens on this port of each address, 0: a free one; those that cannot be listened on are left out.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Listen(absl::Span<const std::string> addresses,
                                                                int port, const Limits& limits,
                                                                RefusalLog* refusals);
  // Listens at this path, with mode 0600, and lets in processes of this user and of root. A socket that was
  // left there is replaced, and the new one removed at the end. EnvironmentError when it cannot.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> ListenAt(const std::string& path,
                                                                  const Limits& limits, RefusalLog* refusals);
  ~ConnectionGate();

  const std::vector<std::string>& endpoints() const { return endpoints_; }  // "host:port"
  // Hands connections to the server, until destroyed. Once.
  void Open(std::unique_ptr<Acceptor> acceptor);

 private:
  struct Connection {
    int fd;
    uint64_t inode;  // of the socket, to tell whether the descriptor is still this one
  };

  ConnectionGate(const Limits& limits, RefusalLog* refusals, std::string what)
      : limits_(limits), refusals_(refusals), what_(std::move(what)) {}
  absl::Status MakeStopFd();
  void Run();
  void Accept(int listener);
  // Where it comes from; empty: whoever that is has been turned away.
  std::string PeerOf(int fd, const sockaddr_storage& address);
  bool Admit(int fd, const std::string& peer);

  const Limits limits_;
  RefusalLog* const refusals_;
  const std::string what_;  // for messages: "the agents' port"
  std::string path_;        // of a Unix socket, once it is there
  std::vector<std::string> endpoints_;
  std::vector<int> listeners_;
  int stop_fd_ = -1;
  std::unique_ptr<Acceptor> acceptor_;
  std::map<std::string, std::deque<Connection>> connections_;  // by peer; some are closed by now
  std::thread thread_;
};

}  // namespace trainctl::rpc
