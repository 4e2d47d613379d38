// Internal to lib/rpc: converts between generated and plain types, and defines message limits and the token's
// metadata key.
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
// Limits on the memory that a peer can make this process use. gRPC buffers a message until all of it has
// arrived.
inline constexpr int kMaxMessageBytes = 16 << 20;
inline constexpr int64_t kMaxStoreBytes = int64_t{256} << 20;
inline constexpr int kMaxKeyBytes = 4096;
inline constexpr size_t kMaxTextBytes = 64 << 10;

absl::Status FromGrpc(const grpc::Status& status, absl::string_view what);
grpc::Status ToGrpc(const absl::Status& status);
// Whether the status means that the agent or worker was rejected, as opposed to a connection failure.
bool IsRefusal(const grpc::Status& status);
v1::DirectiveMessage::Kind ToWire(DirectiveKind kind);
DirectiveKind FromWire(v1::DirectiveMessage::Kind kind);
// Returns the event in a worker's message, or nullopt for a body that only newer peers support.
std::optional<rendezvous::Event> EventOf(const v1::WorkerMessage& message);
// Converts a worker's message to the coordinator, without a sequence number.
v1::WorkerMessage MessageOf(const rendezvous::WorkerWords& words, const Launch& launch);
std::optional<rendezvous::WorkerOrder> OrderOf(const v1::CoordinatorMessage& message);
// Returns `text` as valid UTF-8, which protobuf requires, and truncated to kMaxTextBytes.
std::string WireText(absl::string_view text);

}  // namespace trainctl::rpc
