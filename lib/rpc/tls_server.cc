#include "rpc/tls_server.h"

#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "rpc/tls.h"

namespace trainctl::rpc {

absl::StatusOr<std::unique_ptr<TlsServer>> TlsServer::Start(const Options& options, const Credential& own,
                                                            grpc::Service* service, RefusalLog* refusals) {
  auto started = std::unique_ptr<TlsServer>(new TlsServer);
  TRAINCTL_ASSIGN_OR_RETURN(const auto credentials, MakeServerCredentials(own));
  TRAINCTL_ASSIGN_OR_RETURN(started->gate_, ConnectionGate::Listen(options.addresses, options.port,
                                                                   options.what, options.limits, refusals));
  grpc::ServerBuilder builder;
  SetServerLimits(builder, options.max_message_bytes);
  started->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterService(service);
  started->server_ = builder.BuildAndStart();
  if (started->server_ == nullptr || started->endpoints().empty()) {
    return EnvironmentError(absl::StrCat("cannot listen for other machines on ",
                                         absl::StrJoin(options.addresses, ", "),
                                         options.port == 0 ? "" : absl::StrCat(", port ", options.port),
                                         "; set launch.interface to use another network"));
  }
  return started;
}

TlsServer::~TlsServer() { Shutdown(absl::ZeroDuration()); }

void TlsServer::Shutdown(absl::Duration patience) {
  if (gate_ != nullptr) gate_->Close();  // calls that are under way still use it
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
  server_->Wait();
  server_.reset();
}

}  // namespace trainctl::rpc
