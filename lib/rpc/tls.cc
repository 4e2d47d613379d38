#include "rpc/tls.h"

#include <arpa/inet.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/auth_context.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/names.h"
#include "base/status.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

// What gRPC calls the endpoint: with its scheme, for it would take "unix:7000" for a file.
absl::StatusOr<std::string> Target(absl::string_view endpoint) {
  const absl::Status malformed = UsageError(
      absl::StrCat(QuotedName(endpoint), " is no address: write HOST:PORT, or [HOST]:PORT for IPv6"));
  const size_t colon = endpoint.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(endpoint.substr(colon + 1), &port) || port < 1 ||
      port > 65535) {
    return malformed;
  }
  std::string host(endpoint.substr(0, colon));
  in6_addr address;
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
    if (::inet_pton(AF_INET6, host.c_str(), &address) != 1) return malformed;
    return absl::StrCat("ipv6:[", host, "]:", port);
  }
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1) return absl::StrCat("ipv4:", host, ":", port);
  if (host.empty() || host.size() > kMaxIdentityNameBytes) return malformed;
  for (const char c : host) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_')
      return malformed;
  }
  return absl::StrCat("dns:///", host, ":", port);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Credential& credential) {
  TRAINCTL_RETURN_IF_ERROR(CheckCredential(credential));
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = credential.ca_pem;
  options.pem_key_cert_pairs.push_back({credential.key_pem, credential.cert_pem});
  return grpc::SslServerCredentials(options);
}

void SetServerLimits(grpc::ServerBuilder& builder, int max_message_bytes) {
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentCalls);
  builder.SetMaxReceiveMessageSize(max_message_bytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshakeTimeout));
  // An agent's stream lasts as long as the agent; a connection without any call is nobody's.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(kHandshakeTimeout));
  // Pings are allowed at twice the rate at which clients send them, and without calls; a server that thinks
  // them too many ends the connection.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(kPingInterval / 2));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeClientCredentials(
    const Credential& credential) {
  TRAINCTL_RETURN_IF_ERROR(CheckCredential(credential));
  TRAINCTL_RETURN_IF_ERROR(CheckDates(credential, absl::Now()));
  return grpc::SslCredentials({credential.ca_pem, credential.key_pem, credential.cert_pem});
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeTlsChannel(
    absl::string_view endpoint, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string target, Target(endpoint));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // A job's machines reach one another without a proxy, and need no service configuration from DNS.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetSslTargetNameOverride(kCoordinatorName);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kPingInterval));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kPingTimeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(kMaxReconnectBackoff));
  // Each channel has a connection of its own: a new one shall not wait for one that is dead.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

bool IsTls(const grpc::ServerContextBase& context) {
  const std::vector<grpc::string_ref> types =
      context.auth_context()->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  return types.size() == 1 && types[0] == GRPC_SSL_TRANSPORT_SECURITY_TYPE;
}

std::optional<Identity> PeerIdentity(const grpc::ServerContextBase& context, absl::string_view job_id) {
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (!IsTls(context) || !peer->IsPeerAuthenticated()) return std::nullopt;
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : peer->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  absl::StatusOr<Identity> identity = ParsePeer(uris, job_id);
  if (!identity.ok()) return std::nullopt;
  return *std::move(identity);
}

std::string PeerCertificate(const grpc::ServerContextBase& context) {
  const std::vector<grpc::string_ref> found =
      context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return found.empty() ? "" : std::string(found[0].data(), found[0].size());
}

}  // namespace trainctl::rpc
