// Internal to lib/rpc: connections between the machines of a job, over TCP with TLS 1.2 or 1.3. The server
// shows the coordinator's certificate and the client its own; without one of the job's authority a client
// never gets as far as HTTP/2. The service must check, with PeerIdentity, that a certificate allows the call.
// Thread safe.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rpc/job_authority.h"

namespace trainctl::rpc {

// A client must show a certificate of the job's authority, for clients, and within its dates; otherwise there
// is no connection. UsageError as CheckCredential.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Credential& credential);

// Sets the maximum message size, the allowed ping rate and the number of concurrent calls per connection. A
// connection that takes longer than kHandshakeTimeout for its handshake is dropped, and so is one that has no
// call for as long. The server itself sends no pings. The coordinator decides which peers are silent, and a
// worker stopped in a debugger keeps its connection.
void SetServerLimits(grpc::ServerBuilder& builder, int max_message_bytes);

// UsageError as CheckCredential, and if the authority's certificate is not valid at the time of this
// machine's clock (CheckDates).
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeClientCredentials(const Credential& credential);

// To a coordinator at "host:port", "1.2.3.4:port" or "[::1]:port"; UsageError for anything else. Does not
// connect yet. The server is the coordinator if the authority says so, whatever its address. A connection
// whose other end is gone is noticed within kPingInterval + kPingTimeout, and tried again at least every
// kMaxReconnectBackoff.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeTlsChannel(
    absl::string_view endpoint, const std::shared_ptr<grpc::ChannelCredentials>& credentials);
// A connection that has not shown a certificate and made a call by then is ended.
inline constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);
// Calls at a time on one connection: an agent has one stream, and what else it asks goes over that.
inline constexpr int kMaxConcurrentCalls = 16;
inline constexpr absl::Duration kPingInterval = absl::Seconds(10);
inline constexpr absl::Duration kPingTimeout = absl::Seconds(15);  // gRPC looks at an idle channel every 5 s
inline constexpr absl::Duration kMaxReconnectBackoff = absl::Seconds(5);

// Whether the call came over such a connection; others come over a Unix socket.
bool IsTls(const grpc::ServerContextBase& context);
// Who calls, by a certificate that was verified; none for a caller without one, or whose certificate names
// nobody of this job.
std::optional<Identity> PeerIdentity(const grpc::ServerContextBase& context, absl::string_view job_id);
// The caller's certificate, PEM; empty: it has none.
std::string PeerCertificate(const grpc::ServerContextBase& context);

}  // namespace trainctl::rpc
