// Internal to lib/rpc: a gRPC service on a Unix socket that this user's processes alone reach. Thread safe.
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
  // Serves until destroyed; a socket that is left at `path` is replaced. `service` and `refusals` outlive it.
  // EnvironmentError when it cannot listen there.
  static absl::StatusOr<std::unique_ptr<SocketServer>> Start(const std::string& path, grpc::Service* service,
                                                             RefusalLog* refusals);
  ~SocketServer();
  // Restores the socket file; see ConnectionGate::RestoreSocket.
  absl::Status Restore() { return gate_->RestoreSocket(); }
  // Removes the socket. Calls that are answered have `patience` to reach the caller; all others end.
  void Shutdown(absl::Duration patience);

 private:
  SocketServer() = default;

  std::unique_ptr<ConnectionGate> gate_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace trainctl::rpc
