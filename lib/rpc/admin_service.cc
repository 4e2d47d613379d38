#include "rpc/admin_service.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "rpc/folder_check.h"
#include "rpc/tls.h"
#include "rpc/worker_stream.h"

namespace trainctl::rpc {

grpc::Status AdminService::Check(const grpc::ServerContextBase& context, const char* changes) const {
  const std::optional<Identity> caller = PeerIdentity(context, job_);
  if (!caller) {
    refusals_->Add(RefusalLog::Kind::kCall,
                   "a call to the admin port was refused: its caller has no certificate of this job");
    return {grpc::StatusCode::UNAUTHENTICATED, "only who has a certificate of this job may call"};
  }
  if (MayAdminister(caller->role, changes)) return CheckFolder(context, folder_);
  const std::string why = WhyMayNot(caller->role, changes != nullptr ? changes : "ask this");
  refusals_->Add(RefusalLog::Kind::kRole, absl::StrCat("a call of ", caller->name, " was refused: ", why));
  return {grpc::StatusCode::PERMISSION_DENIED, why};
}

grpc::ServerUnaryReactor* AdminService::Status(grpc::CallbackServerContext* context,
                                               const v1::StatusRequest* request, v1::StatusReply* reply) {
  const grpc::Status allowed = Check(*context, /*changes=*/nullptr);
  return allowed.ok() ? handler_->OnAdminStatus(context, reply) : FinishNow(context, allowed);
}

grpc::ServerUnaryReactor* AdminService::Stop(grpc::CallbackServerContext* context,
                                             const v1::StopRequest* request, v1::StopReply* reply) {
  const grpc::Status allowed = Check(*context, kStopsTheRun);
  return allowed.ok() ? handler_->OnAdminStop(context, *request) : FinishNow(context, allowed);
}

grpc::ServerUnaryReactor* AdminService::Save(grpc::CallbackServerContext* context,
                                             const v1::SaveRequest* request, v1::SaveReply* reply) {
  const grpc::Status allowed = Check(*context, kSavesTheRun);
  return allowed.ok() ? handler_->OnAdminSave(context) : FinishNow(context, allowed);
}

}  // namespace trainctl::rpc
