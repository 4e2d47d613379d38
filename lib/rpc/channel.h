// Internal to lib/rpc: a channel to a job's Unix socket.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace trainctl::rpc {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& socket);

}  // namespace trainctl::rpc
