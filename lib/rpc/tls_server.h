// Internal to lib/rpc: a gRPC server at a TCP port, with mutual TLS and limits for strangers
// (connection_gate.h). Thread safe.
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
    std::vector<std::string> addresses;  // of this machine, to listen on
    int port = 0;                        // 0: a free one of each address
    std::string what;                    // for messages: "the agents' port"
    ConnectionGate::Limits limits = ConnectionGate::LimitsOfPort();
    int max_message_bytes = 0;
  };

  // Listens, and once it is opened serves `service`, which outlives the server, to clients with a certificate
  // of own.ca_pem. EnvironmentError if it can listen on no address.
  static absl::StatusOr<std::unique_ptr<TlsServer>> Start(const Options& options, const Credential& own,
                                                          grpc::Service* service, RefusalLog* refusals);
  ~TlsServer();
  // Accepts connections from now on: calls may come before this returns. Once.
  void Open() { gate_->Open(std::move(acceptor_)); }

  const std::vector<std::string>& endpoints() const { return gate_->endpoints(); }  // "host:port"
  // The limits for strangers no longer apply to the connection of this call: its caller is known.
  void Welcome(const grpc::ServerContextBase& context) { gate_->Welcome(context.peer()); }
  // Ends all calls, within `patience`; nothing is served afterwards. Idempotent.
  void Shutdown(absl::Duration patience);

 private:
  TlsServer() = default;
  std::unique_ptr<ConnectionGate> gate_;
  std::unique_ptr<ConnectionGate::Acceptor> acceptor_;  // until it is opened
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace trainctl::rpc
