// Internal to lib/rpc: makes a channel to a job's Unix socket, if the system has room for gRPC.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace trainctl::rpc {

// Returns EnvironmentError, naming the limit, if the system does not allow the threads, descriptors and
// memory that gRPC needs: it would abort, or hang when it shuts down. Call this before the first use of gRPC.
// Does nothing once it has succeeded. Thread-safe.
absl::Status CheckRoomForGrpc();

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& socket);

}  // namespace trainctl::rpc
