#include "rpc/admin_port.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace trainctl::rpc {
namespace {

// A connection serves a call or two, which take 4 KiB with their handshake.
constexpr size_t kMaxConnections = 16;
constexpr int64_t kMaxBytesIn = 32 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<AdminPort>> AdminPort::Start(const std::string& job,
                                                            const rendezvous::JobFolder& folder,
                                                            const std::vector<std::string>& addresses,
                                                            const Clock& clock, RefusalLog* refusals,
                                                            AdminService::Handler* handler) {
  auto port = std::unique_ptr<AdminPort>(new AdminPort(job, folder, refusals, handler));
  TRAINCTL_ASSIGN_OR_RETURN(port->authority_, JobAuthority::Create(job, clock));
  TRAINCTL_ASSIGN_OR_RETURN(const Credential own,
                            port->authority_->Issue({Role::kCoordinator, "launch"}, addresses));
  TlsServer::Options options{
      .addresses = addresses, .what = "the admin port", .max_message_bytes = static_cast<int>(kMaxBytesIn)};
  options.limits.max_connections = std::min(options.limits.max_connections, kMaxConnections);
  options.limits.max_bytes_in = kMaxBytesIn;
  TRAINCTL_ASSIGN_OR_RETURN(port->server_, TlsServer::Start(options, own, &port->service_, refusals));
  port->server_->Open();
  return port;
}

absl::StatusOr<LauncherAccess> AdminPort::MakeAccess(Role role) const {
  TRAINCTL_ASSIGN_OR_RETURN(Credential credential, authority_->Issue({role, std::string(RoleName(role))}));
  return LauncherAccess{authority_->job_id(), server_->endpoints(), std::move(credential)};
}

}  // namespace trainctl::rpc
