// Serves the rendezvous over gRPC on a Unix socket. Hosts the coordinator and one key-value store per
// generation. Every call must carry a token. Thread-safe.
//
//   auto service = rpc::StartServer({.socket_path = ..., .token_path = ..., .timeouts = ...});
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "rendezvous/service.h"

namespace trainctl::rpc {

// Starts the service: binds the socket with mode 0600, replacing a stale one, and writes a new token. Returns
// EnvironmentError if either fails. The signature matches rendezvous::RendezvousFactory.
absl::StatusOr<std::unique_ptr<rendezvous::RendezvousService>> StartServer(
    const rendezvous::ServiceOptions& options);

}  // namespace trainctl::rpc
