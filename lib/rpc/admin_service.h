// Internal to lib/rpc: serves status, save and stop requests from other machines, as far as the role in the
// caller's certificate permits. Thread-safe; gRPC calls it on its own threads.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <string>

#include "absl/strings/string_view.h"
#include "proto/trainctl.grpc.pb.h"
#include "rendezvous/service.h"
#include "rpc/grpc_log.h"

namespace trainctl::rpc {

// Names of the admin-only actions in error messages.
inline constexpr char kStopsTheRun[] = "stop the run";
inline constexpr char kSavesTheRun[] = "have the run saved";

class AdminService : public v1::Admin::CallbackService {
 public:
  // Handles calls whose caller was admitted. They correspond to v1::Trainctl calls with a valid token.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual grpc::ServerUnaryReactor* OnAdminStatus(grpc::CallbackServerContext* context,
                                                    v1::StatusReply* reply) = 0;
    virtual grpc::ServerUnaryReactor* OnAdminStop(grpc::CallbackServerContext* context,
                                                  const v1::StopRequest& request) = 0;
    virtual grpc::ServerUnaryReactor* OnAdminSave(grpc::CallbackServerContext* context) = 0;
  };

  // `refusals` and `handler` must outlive it.
  AdminService(std::string job, rendezvous::JobFolder folder, RefusalLog* refusals, Handler* handler)
      : job_(std::move(job)), folder_(std::move(folder)), refusals_(refusals), handler_(handler) {}

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const v1::StatusRequest* request,
                                   v1::StatusReply* reply) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const v1::StopRequest* request,
                                 v1::StopReply* reply) override;
  grpc::ServerUnaryReactor* Save(grpc::CallbackServerContext* context, const v1::SaveRequest* request,
                                 v1::SaveReply* reply) override;

 private:
  // Returns an error unless the caller is allowed to do this. `changes` is the admin-only action ("stop the
  // run"), or null for a status query.
  grpc::Status Check(const grpc::ServerContextBase& context, const char* changes) const;

  const std::string job_;
  const rendezvous::JobFolder folder_;
  RefusalLog* const refusals_;
  Handler* const handler_;
};

}  // namespace trainctl::rpc
