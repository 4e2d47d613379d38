#include "rpc/socket_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "rpc/wire.h"

namespace trainctl::rpc {

absl::StatusOr<std::unique_ptr<SocketServer>> SocketServer::Start(const std::string& path,
                                                                  grpc::Service* service,
                                                                  RefusalLog* refusals) {
  auto started = std::unique_ptr<SocketServer>(new SocketServer);
  TRAINCTL_ASSIGN_OR_RETURN(started->gate_,
                            ConnectionGate::ListenAt(path, ConnectionGate::LimitsOfSocket(), refusals));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  started->server_ = builder.BuildAndStart();
  if (started->server_ == nullptr) {
    return EnvironmentError(absl::StrCat("cannot serve the control socket ", path));
  }
  started->gate_->Open(std::move(acceptor));
  return started;
}

SocketServer::~SocketServer() { Shutdown(absl::ZeroDuration()); }

void SocketServer::Shutdown(absl::Duration patience) {
  gate_.reset();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
  server_->Wait();
  server_.reset();
}

}  // namespace trainctl::rpc
