// Internal to lib/rpc: the port at which other machines can query a run's status and ask it to save or stop.
// It has its own certificate authority: every user who can read the run folder finds a reader's certificate
// there (access_file.h), which the agents' port must not accept. The number of bytes that a connection may
// send is limited (metered_relay.h). Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "rendezvous/service.h"
#include "rpc/access_file.h"
#include "rpc/admin_service.h"
#include "rpc/grpc_log.h"
#include "rpc/identity.h"
#include "rpc/job_authority.h"
#include "rpc/tls_server.h"

namespace trainctl::rpc {

class AdminPort {
 public:
  // Listens on a free port at each address. `refusals` and `handler` must outlive it.
  static absl::StatusOr<std::unique_ptr<AdminPort>> Start(const std::string& job,
                                                          const rendezvous::JobFolder& folder,
                                                          const std::vector<std::string>& addresses,
                                                          const Clock& clock, RefusalLog* refusals,
                                                          AdminService::Handler* handler);

  // Creates the addresses and credential for a caller with this role, kAdmin or kReader.
  absl::StatusOr<LauncherAccess> MakeAccess(Role role) const;
  // Ends all calls within `patience` and stops serving.
  void Shutdown(absl::Duration patience) { server_->Shutdown(patience); }

 private:
  AdminPort(const std::string& job, const rendezvous::JobFolder& folder, RefusalLog* refusals,
            AdminService::Handler* handler)
      : service_(job, folder, refusals, handler) {}

  std::unique_ptr<JobAuthority> authority_;
  AdminService service_;
  std::unique_ptr<TlsServer> server_;
};

}  // namespace trainctl::rpc
