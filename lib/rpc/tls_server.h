// Internal to lib/rpc: a gRPC server on a TCP port, with mutual TLS and limits for unidentified clients
// (connection_gate.h). Thread-safe.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/connection_gate.h"
#include "rpc/grpc_log.h"
#include "rpc/job_authority.h"

namespace trainctl::rpc {

class TlsServer {
 public:
  struct Options {
    // Addresses of this machine to listen on.
    std::vector<std::string> addresses;
    // Port to listen on; 0 picks a free port for each address.
    int port = 0;
    // Name of the port in messages, for example "the agents' port".
    std::string what;
    ConnectionGate::Limits limits = ConnectionGate::LimitsOfPort();
    int max_message_bytes = 0;
  };

  // Starts to listen. Once opened, the server serves `service` to clients with a certificate from the
  // authority own.ca_pem. `service` and `refusals` must outlive the server. Returns EnvironmentError if it
  // cannot listen at any address.
  static absl::StatusOr<std::unique_ptr<TlsServer>> Start(const Options& options, const Credential& own,
                                                          grpc::Service* service, RefusalLog* refusals);
  ~TlsServer();
  // Starts accepting connections. Calls may arrive before this returns. Call this once.
  void Open() { gate_->Open(std::move(acceptor_)); }

  const std::vector<std::string>& endpoints() const { return gate_->endpoints(); }  // "host:port"
  // Exempts this call's connection from the limits, because its caller has been identified.
  void Welcome(const grpc::ServerContextBase& context) { gate_->Welcome(context.peer()); }
  // Ends all calls within `patience` and stops serving. Idempotent.
  void Shutdown(absl::Duration patience);

 private:
  TlsServer() = default;
  std::unique_ptr<ConnectionGate> gate_;
  std::unique_ptr<ConnectionGate::Acceptor> acceptor_;  // set until Open
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace trainctl::rpc
