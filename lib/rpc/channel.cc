#include "rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "rpc/wire.h"

namespace trainctl::rpc {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // A peer on this machine needs no proxy and no service configuration from DNS.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace trainctl::rpc
