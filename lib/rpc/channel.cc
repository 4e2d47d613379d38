#include "rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <atomic>

#include "base/process_limits.h"
#include "base/status.h"
#include "base/unix_socket.h"
#include "rpc/wire.h"

namespace trainctl::rpc {

absl::Status CheckRoomForGrpc() {
  static std::atomic<bool> has_room = false;
  if (has_room) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(
      TryResources({.num_threads = 16, .num_files = 10, .bytes = int64_t{16} << 20}, "gRPC"));
  has_room = true;
  return absl::OkStatus();
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // A peer on this machine needs no proxy and no service configuration from DNS.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // A folder that cannot be opened is no server, either: the call says so.
  return grpc::CreateCustomChannel("unix:" + ShortSocketPath(socket).value_or(socket),
                                   grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace trainctl::rpc
