#include "rpc/admin_service.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "rpc/tls.h"
#include "rpc/worker_stream.h"

namespace trainctl::rpc {

grpc::Status AdminService::Check(const grpc::ServerContextBase& context, const char* changes) const {
  const std::optional<Identity> caller = PeerIdentity(context, job_);
  if (!caller) return {grpc::StatusCode::UNAUTHENTICATED, "only who has a certificate of this job may call"};
  if (caller->role == Role::kAdmin || (caller->role == Role::kReader && changes == nullptr))
    return grpc::Status::OK;
  return {grpc::StatusCode::PERMISSION_DENIED,
          absl::StrCat("a certificate of role ", RoleName(caller->role), " may not ",
                       changes != nullptr ? changes : "ask this")};
}

grpc::ServerUnaryReactor* AdminService::Status(grpc::CallbackServerContext* context,
                                               const v1::StatusRequest* request, v1::StatusReply* reply) {
  const grpc::Status allowed = Check(*context, /*changes=*/nullptr);
  return allowed.ok() ? handler_->OnAdminStatus(context, reply) : FinishNow(context, allowed);
}

grpc::ServerUnaryReactor* AdminService::Stop(grpc::CallbackServerContext* context,
                                             const v1::StopRequest* request, v1::StopReply* reply) {
  const grpc::Status allowed = Check(*context, "stop the run");
  return allowed.ok() ? handler_->OnAdminStop(context, *request) : FinishNow(context, allowed);
}

grpc::ServerUnaryReactor* AdminService::Save(grpc::CallbackServerContext* context,
                                             const v1::SaveRequest* request, v1::SaveReply* reply) {
  const grpc::Status allowed = Check(*context, "have the run saved");
  return allowed.ok() ? handler_->OnAdminSave(context) : FinishNow(context, allowed);
}

}  // namespace trainctl::rpc
