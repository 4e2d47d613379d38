// Internal to lib/rpc: connections between a job's machines, over TCP with TLS 1.2 or 1.3. The server
// presents the coordinator's certificate, and each client presents its own. A client without a certificate
// from the job's authority never gets as far as HTTP/2. The service must call PeerIdentity to check whether
// the certificate allows a call. Thread-safe.
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

// Makes credentials that refuse any connection whose client does not present a currently valid client
// certificate from the job's authority. Returns UsageError like CheckCredential.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Credential& credential);

// Sets the maximum message size, the allowed ping rate and the number of concurrent calls per connection. A
// connection is dropped if its handshake takes longer than kHandshakeTimeout or if it is without a call for
// that long. The server does not send pings of its own, because the coordinator decides which peers are
// silent; a worker stopped in a debugger therefore keeps its connection.
void SetServerLimits(grpc::ServerBuilder& builder, int max_message_bytes);

// Makes credentials for a client. Returns UsageError like CheckCredential, and if the certificates are not
// valid according to this machine's clock (see CheckDates).
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeClientCredentials(const Credential& credential);

// Makes a channel to a coordinator at "host:port", "1.2.3.4:port" or "[::1]:port"; returns UsageError for any
// other endpoint. Does not connect yet. The authority's certificate, not the address, proves that the server
// is the coordinator. A broken connection is detected within kPingInterval + kPingTimeout, and reconnecting
// is tried at least every kMaxReconnectBackoff.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeTlsChannel(
    absl::string_view endpoint, const std::shared_ptr<grpc::ChannelCredentials>& credentials);
// A connection that has not presented a certificate and made a call within this time is closed.
inline constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);
// Maximum number of concurrent calls per connection. An agent needs only one, a stream that carries all its
// requests.
inline constexpr int kMaxConcurrentCalls = 16;
inline constexpr absl::Duration kPingInterval = absl::Seconds(10);
inline constexpr absl::Duration kPingTimeout = absl::Seconds(15);  // gRPC checks an idle channel every 5 s
inline constexpr absl::Duration kMaxReconnectBackoff = absl::Seconds(5);

// Whether the call arrived over TLS rather than over a Unix socket.
bool IsTls(const grpc::ServerContextBase& context);
// Returns the identity in the caller's verified certificate, or nullopt if the caller has no certificate or
// the certificate has no identity of this job.
std::optional<Identity> PeerIdentity(const grpc::ServerContextBase& context, absl::string_view job_id);
// Returns the caller's certificate in PEM, or an empty string if it has none.
std::string PeerCertificate(const grpc::ServerContextBase& context);

}  // namespace trainctl::rpc
