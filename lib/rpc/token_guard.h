// Internal to lib/rpc: controls access to a Unix socket. Each caller has its own token, in a file with mode
// 0600. Thread-safe.
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
  // `refusals` must outlive it.
  TokenGuard(Launch launch, RefusalLog* refusals) : launch_(std::move(launch)), refusals_(refusals) {}
  // Removes the workers' token files. The admin's token file stays in the run folder.
  ~TokenGuard();

  // Admits `identity` and writes its token to `path`. If it was admitted before, its token and file stay the
  // same. Returns EnvironmentError if the file cannot be written.
  absl::Status Admit(const Identity& identity, const std::string& path);

  // Checks that the caller is a worker and sets `member` to its member. Returns UNAUTHENTICATED without a
  // known token, and PERMISSION_DENIED if the token is for another role. Logs refusals.
  grpc::Status CheckWorker(const grpc::ServerContextBase& context, std::string* member);
  // Like CheckWorker, but checks that the caller may administer the run; see MayAdminister.
  grpc::Status CheckAdmin(const grpc::ServerContextBase& context, const char* changes);
  // Logs that a worker claimed to be another member, and returns the status with which to end its call.
  grpc::Status RefuseImpostor(const std::string& member, absl::string_view claimed);
  // Returns an error, and logs the refusal, if a message is not from this launch.
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
