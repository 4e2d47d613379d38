// Internal to lib/rpc: accepts TCP connections for a gRPC server, and as many as this process can bear. gRPC
// itself takes all that come, and once there is no file descriptor left for one it never accepts another.
// Thread safe.
#pragma once

#include <grpcpp/server_builder.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rpc/grpc_log.h"

namespace trainctl::rpc {

class ConnectionGate {
 public:
  struct Limits {
    // Connections from one address: the agents of a node, of this machine in tests, and a few that are on
    // their way out.
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
  ~ConnectionGate();

  const std::vector<std::string>& endpoints() const { return endpoints_; }  // "host:port"
  // Hands connections to the server, until destroyed. Once.
  void Open(std::unique_ptr<Acceptor> acceptor);

 private:
  struct Connection {
    int fd;
    uint64_t inode;  // of the socket, to tell whether the descriptor is still this one
  };

  ConnectionGate(const Limits& limits, RefusalLog* refusals) : limits_(limits), refusals_(refusals) {}
  void Run();
  void Accept(int listener);
  bool Admit(int fd, const std::string& peer);

  const Limits limits_;
  RefusalLog* const refusals_;
  std::vector<std::string> endpoints_;
  std::vector<int> listeners_;
  int stop_fd_ = -1;
  std::unique_ptr<Acceptor> acceptor_;
  std::map<std::string, std::deque<Connection>> connections_;  // by address; some are closed by now
  std::thread thread_;
};

}  // namespace trainctl::rpc
