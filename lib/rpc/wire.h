// Internal to lib/rpc: the generated types against the plain ones, limits and the token's name.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/control_channel.h"
#include "proto/trainctl.pb.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/worker_session.h"
#include "rpc/header.h"

namespace trainctl::rpc {

inline constexpr char kTokenKey[] = "trainctl-token";
inline constexpr int kProtocolVersion = 1;
// Bounds on what a peer can make this process keep. gRPC holds a larger message until all of it has come.
inline constexpr int kMaxMessageBytes = 16 << 20;
inline constexpr int64_t kMaxStoreBytes = int64_t{256} << 20;
inline constexpr int kMaxKeyBytes = 4096;
inline constexpr size_t kMaxTextBytes = 64 << 10;

absl::Status FromGrpc(const grpc::Status& status, absl::string_view what);
grpc::Status ToGrpc(const absl::Status& status);
// What an agent or worker is answered that is not wanted; anything else is an accident of the connection.
bool IsRefusal(const grpc::Status& status);
v1::DirectiveMessage::Kind ToWire(DirectiveKind kind);
DirectiveKind FromWire(v1::DirectiveMessage::Kind kind);
// What a worker's message tells the coordinator; empty for a body that only newer peers know.
std::optional<rendezvous::Event> EventOf(const v1::WorkerMessage& message);
// The worker's side of it; without a number.
v1::WorkerMessage MessageOf(const rendezvous::WorkerWords& words, const Launch& launch);
std::optional<rendezvous::WorkerOrder> OrderOf(const v1::CoordinatorMessage& message);
// At most kMaxTextBytes of valid UTF-8 (protobuf refuses other strings).
std::string WireText(absl::string_view text);

}  // namespace trainctl::rpc
