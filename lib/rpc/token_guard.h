// Internal to lib/rpc: who may call at a Unix socket, and as whom. Everybody has a token of its own, in a
// file of mode 0600. Thread safe.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rpc/grpc_log.h"
#include "rpc/header.h"
#include "rpc/identity.h"

namespace trainctl::rpc {

class TokenGuard {
 public:
  // `refusals` outlives it.
  TokenGuard(Launch launch, RefusalLog* refusals) : launch_(std::move(launch)), refusals_(refusals) {}
  // Removes the workers' files. That of an admin stays, as the run folder's others do.
  ~TokenGuard();

  // Writes a token for `identity` to `path`, once: asked again it is the same token in the same file.
  // EnvironmentError when it cannot be written.
  absl::Status Admit(const Identity& identity, const std::string& path);

  // Whether the caller is a worker; then `member` is whose. UNAUTHENTICATED without a token that is known,
  // PERMISSION_DENIED for another role's; the log tells.
  grpc::Status CheckWorker(const grpc::ServerContextBase& context, std::string* member);
  // The same for who may administer, see MayAdminister.
  grpc::Status CheckAdmin(const grpc::ServerContextBase& context, const char* changes);
  // A worker spoke for a member that is not its own. Returns what to end its call with; the log tells.
  grpc::Status RefuseImpostor(const std::string& member, absl::string_view claimed);
  // Whether a message is of this launch; if not, the same.
  grpc::Status CheckLaunch(const v1::Header& header);

 private:
  struct Entry {
    Identity identity;
    std::string token;
    std::string path;
  };

  std::optional<Identity> Find(const grpc::ServerContextBase& context);
  grpc::Status Refuse(const std::optional<Identity>& caller, const char* what);

  const Launch launch_;
  RefusalLog* const refusals_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace trainctl::rpc
