// Internal to lib/rpc: a gRPC service on a Unix socket that only this user's processes can reach.
// Thread-safe.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/connection_gate.h"
#include "rpc/grpc_log.h"

namespace trainctl::rpc {

class SocketServer {
 public:
  // Serves `service` until destroyed. Replaces a leftover socket at `path`. `service` and `refusals` must
  // outlive the server. Returns EnvironmentError if it cannot listen at `path`.
  static absl::StatusOr<std::unique_ptr<SocketServer>> Start(const std::string& path, grpc::Service* service,
                                                             RefusalLog* refusals);
  ~SocketServer();
  // Restores the socket file; see ConnectionGate::RestoreSocket.
  absl::Status Restore() { return gate_->RestoreSocket(); }
  // Removes the socket and ends all calls. Replies that are already under way have `patience` to reach their
  // callers.
  void Shutdown(absl::Duration patience);

 private:
  SocketServer() = default;

  std::unique_ptr<ConnectionGate> gate_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace trainctl::rpc
