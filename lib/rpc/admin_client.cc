#include "rpc/admin_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/network.h"
#include "base/status.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/folder_check.h"
#include "rpc/tls.h"
#include "rpc/token.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

constexpr int kMaxTries = 8;

// One call to a job on this machine.
template <typename Request, typename Reply>
absl::StatusOr<Reply> Call(const LocalJob& job, absl::Duration timeout,
                           grpc::Status (v1::Trainctl::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                      Reply*),
                           const Request& request) {
  TRAINCTL_RETURN_IF_ERROR(CheckRoomForGrpc());
  TRAINCTL_ASSIGN_OR_RETURN(const Pass pass, ReadPass(job.token_file));
  const std::unique_ptr<v1::Trainctl::Stub> stub = v1::Trainctl::NewStub(MakeChannel(job.socket));
  grpc::ClientContext context;
  context.AddMetadata(kTokenKey, pass.token);
  SayFolder(context, job.folder, /*same_machine=*/true);
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  Reply reply;
  const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrCat("the job's launcher does not answer on ", job.socket));
  }
  TRAINCTL_RETURN_IF_ERROR(FromGrpc(status, absl::StrCat("job at ", job.socket)));
  return reply;
}

bool IsOpen(const std::string& endpoint) {
  const absl::StatusOr<Endpoint> parsed = ParseEndpoint(endpoint);
  return parsed.ok() && LookAtPort(*parsed, kProbeTimeout) == PortState::kOpen;
}

// One call to a launcher on another machine.
template <typename Request, typename Reply>
absl::StatusOr<Reply> Call(const LauncherAccess& access, absl::Duration timeout,
                           grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                   Reply*),
                           const Request& request) {
  TRAINCTL_RETURN_IF_ERROR(CheckRoomForGrpc());
  TRAINCTL_ASSIGN_OR_RETURN(const auto credentials, MakeClientCredentials(access.credential));
  for (const std::string& endpoint : access.endpoints) {
    Reply reply;
    grpc::Status status;
    // Other clients may crowd the port, but a new connection may succeed. Each call is safe to repeat.
    for (int tries = 0; tries < kMaxTries; ++tries) {
      TRAINCTL_ASSIGN_OR_RETURN(const auto channel, MakeTlsChannel(endpoint, credentials));
      const std::unique_ptr<v1::Admin::Stub> stub = v1::Admin::NewStub(channel);
      grpc::ClientContext context;
      SayFolder(context, access.folder, /*same_machine=*/false);
      context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
      status = (stub.get()->*method)(&context, request, &reply);
      if (status.ok()) return reply;
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE || !IsOpen(endpoint)) break;
    }
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
  JobStatus status;
  status.phase = reply.phase();
  status.generation = reply.generation();
  status.stop = reply.stop();
  status.pid = reply.pid();
  for (const v1::MemberStatus& member : reply.members()) {
    status.workers.push_back({member.member().substr(0, member.member().rfind('/')), member.rank(),
                              member.pid(), member.step(), member.phase(), member.state(),
                              absl::Milliseconds(member.silent_ms()),
                              member.has_peak_bytes() ? std::optional(member.peak_bytes()) : std::nullopt});
  }
  return status;
}

}  // namespace

absl::StatusOr<JobStatus> GetJobStatus(const LocalJob& job, absl::Duration timeout) {
  TRAINCTL_ASSIGN_OR_RETURN(const v1::StatusReply reply,
                            Call(job, timeout, &v1::Trainctl::Stub::Status, v1::StatusRequest()));
  return FromReply(reply);
}

absl::Status StopJob(const LocalJob& job, bool now, absl::string_view reason, absl::Duration timeout) {
  v1::StopRequest request;
  request.set_now(now);
  request.set_reason(WireText(reason));
  return Call(job, timeout, &v1::Trainctl::Stub::Stop, request).status();
}

absl::Status SaveJob(const LocalJob& job, absl::Duration timeout) {
  return Call(job, timeout, &v1::Trainctl::Stub::Save, v1::SaveRequest()).status();
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
