#include "rpc/admin_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/tls.h"
#include "rpc/token.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

// One call to the job that listens on `socket`.
template <typename Request, typename Reply>
absl::StatusOr<Reply> Call(const std::string& socket, const std::string& token_file, absl::Duration timeout,
                           grpc::Status (v1::Trainctl::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                      Reply*),
                           const Request& request) {
  TRAINCTL_ASSIGN_OR_RETURN(const Pass pass, ReadPass(token_file));
  const std::unique_ptr<v1::Trainctl::Stub> stub = v1::Trainctl::NewStub(MakeChannel(socket));
  grpc::ClientContext context;
  context.AddMetadata(kTokenKey, pass.token);
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  Reply reply;
  const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrCat("the job's launcher does not answer on ", socket));
  }
  TRAINCTL_RETURN_IF_ERROR(FromGrpc(status, absl::StrCat("job at ", socket)));
  return reply;
}

// One call to a launcher on another machine.
template <typename Request, typename Reply>
absl::StatusOr<Reply> Call(const LauncherAccess& access, absl::Duration timeout,
                           grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                   Reply*),
                           const Request& request) {
  TRAINCTL_ASSIGN_OR_RETURN(const auto credentials, MakeClientCredentials(access.credential));
  for (const std::string& endpoint : access.endpoints) {
    TRAINCTL_ASSIGN_OR_RETURN(const auto channel, MakeTlsChannel(endpoint, credentials));
    const std::unique_ptr<v1::Admin::Stub> stub = v1::Admin::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    Reply reply;
    const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
    if (status.ok()) return reply;
    // What is another's port by now, or an address that means another machine here, is no answer.
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
        status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      continue;
    }
    return FromGrpc(status, absl::StrCat("job at ", endpoint));
  }
  return absl::UnavailableError(
      absl::StrCat("the job's launcher does not answer on ", absl::StrJoin(access.endpoints, ", ")));
}

JobStatus FromReply(const v1::StatusReply& reply) {
  JobStatus job;
  job.phase = reply.phase();
  job.generation = reply.generation();
  job.stop = reply.stop();
  job.pid = reply.pid();
  for (const v1::MemberStatus& member : reply.members()) {
    job.workers.push_back({member.member().substr(0, member.member().rfind('/')), member.rank(), member.pid(),
                           member.step(), member.phase(), member.state(),
                           absl::Milliseconds(member.silent_ms()),
                           member.has_peak_bytes() ? std::optional(member.peak_bytes()) : std::nullopt});
  }
  return job;
}

}  // namespace

absl::StatusOr<JobStatus> GetJobStatus(const std::string& socket, const std::string& token_file,
                                       absl::Duration timeout) {
  TRAINCTL_ASSIGN_OR_RETURN(
      const v1::StatusReply reply,
      Call(socket, token_file, timeout, &v1::Trainctl::Stub::Status, v1::StatusRequest()));
  return FromReply(reply);
}

absl::Status StopJob(const std::string& socket, const std::string& token_file, bool now,
                     absl::string_view reason, absl::Duration timeout) {
  v1::StopRequest request;
  request.set_now(now);
  request.set_reason(WireText(reason));
  return Call(socket, token_file, timeout, &v1::Trainctl::Stub::Stop, request).status();
}

absl::Status SaveJob(const std::string& socket, const std::string& token_file, absl::Duration timeout) {
  return Call(socket, token_file, timeout, &v1::Trainctl::Stub::Save, v1::SaveRequest()).status();
}

absl::StatusOr<JobStatus> GetJobStatus(const LauncherAccess& access, absl::Duration timeout) {
  TRAINCTL_ASSIGN_OR_RETURN(const v1::StatusReply reply,
                            Call(access, timeout, &v1::Admin::Stub::Status, v1::StatusRequest()));
  return FromReply(reply);
}

absl::Status StopJob(const LauncherAccess& access, bool now, absl::string_view reason,
                     absl::Duration timeout) {
  v1::StopRequest request;
  request.set_now(now);
  request.set_reason(WireText(reason));
  return Call(access, timeout, &v1::Admin::Stub::Stop, request).status();
}

absl::Status SaveJob(const LauncherAccess& access, absl::Duration timeout) {
  return Call(access, timeout, &v1::Admin::Stub::Save, v1::SaveRequest()).status();
}

}  // namespace trainctl::rpc
