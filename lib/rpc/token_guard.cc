#include "rpc/token_guard.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/names.h"
#include "base/status.h"
#include "rpc/token.h"
#include "rpc/wire.h"

namespace trainctl::rpc {

TokenGuard::~TokenGuard() {
  for (const Entry& entry : entries_) {
    if (entry.identity.role == Role::kWorker) ::unlink(entry.path.c_str());
  }
}

absl::Status TokenGuard::Admit(const Identity& identity, const std::string& path) {
  std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.identity != identity) continue;
    // Whoever cleans up old files took it, say, and the next attempt's worker needs it.
    return PathExists(entry.path) ? absl::OkStatus() : WritePass(entry.path, {entry.token, launch_});
  }
  TRAINCTL_ASSIGN_OR_RETURN(std::string token, MakeToken());
  TRAINCTL_RETURN_IF_ERROR(WritePass(path, {token, launch_}));
  entries_.push_back({identity, std::move(token), path});
  return absl::OkStatus();
}

std::optional<Identity> TokenGuard::Find(const grpc::ServerContextBase& context) {
  const auto it = context.client_metadata().find(kTokenKey);
  if (it == context.client_metadata().end()) return std::nullopt;
  const absl::string_view token(it->second.data(), it->second.size());
  std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (SameToken(token, entry.token)) return entry.identity;
  }
  return std::nullopt;
}

grpc::Status TokenGuard::CheckWorker(const grpc::ServerContextBase& context, std::string* member) {
  std::optional<Identity> caller = Find(context);
  if (!caller || caller->role != Role::kWorker) return Refuse(caller, "take part in the training");
  *member = std::move(caller->name);
  return grpc::Status::OK;
}

grpc::Status TokenGuard::CheckAdmin(const grpc::ServerContextBase& context, const char* changes) {
  const std::optional<Identity> caller = Find(context);
  if (caller && MayAdminister(caller->role, changes)) return grpc::Status::OK;
  return Refuse(caller, changes != nullptr ? changes : "ask this");
}

grpc::Status TokenGuard::Refuse(const std::optional<Identity>& caller, const char* what) {
  if (!caller) {
    refusals_->Add(RefusalLog::Kind::kToken, "a call to the job without its token was refused");
    return {grpc::StatusCode::UNAUTHENTICATED, "the job's token is missing or wrong"};
  }
  const std::string why = WhyMayNot(caller->role, what);
  refusals_->Add(RefusalLog::Kind::kRole, absl::StrCat("a call of ", caller->name, " was refused: ", why));
  return {grpc::StatusCode::PERMISSION_DENIED, why};
}

grpc::Status TokenGuard::RefuseImpostor(const std::string& member, absl::string_view claimed) {
  const std::string why = absl::StrCat("worker ", member, " spoke as ", QuotedName(claimed));
  refusals_->Add(RefusalLog::Kind::kImpostor, absl::StrCat("a worker was refused: ", why));
  return {grpc::StatusCode::PERMISSION_DENIED, why};
}

grpc::Status TokenGuard::CheckLaunch(const v1::Header& header) {
  const absl::Status status = CheckHeader(header, launch_);
  if (!status.ok()) {
    refusals_->Add(RefusalLog::Kind::kLaunch, absl::StrCat("a worker was refused: ", status.message()));
  }
  return ToGrpc(status);
}

}  // namespace trainctl::rpc
