// The rendezvous over gRPC on a Unix socket: hosts the coordinator and, for each generation, a
// key-value store. Every call needs the job's token. Thread safe.
//
//   auto service = rpc::StartServer({.socket_path = ..., .token_path = ..., .timeouts = ...});
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "rendezvous/service.h"

namespace trainctl::rpc {

// Binds the socket (mode 0600; a stale one is replaced) and writes a fresh token. EnvironmentError
// when either cannot be done. A rendezvous::RendezvousFactory.
absl::StatusOr<std::unique_ptr<rendezvous::RendezvousService>> StartServer(
    const rendezvous::ServiceOptions& options);

}  // namespace trainctl::rpc
