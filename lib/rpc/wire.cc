#include "rpc/wire.h"

#include "absl/strings/str_cat.h"
#include "launcher/printable_text.h"

namespace trainctl::rpc {
namespace {

void Name(const rendezvous::MemberId& id, int64_t generation, v1::WorkerMessage& message) {
  message.set_member(id.member);
  message.mutable_header()->set_incarnation(id.incarnation);
  message.mutable_header()->set_generation(generation);
}

void Write(const rendezvous::Join& join, v1::WorkerMessage& message) {
  Name(join.id, 0, message);
  message.mutable_join()->set_pid(join.pid);
}

void Write(const rendezvous::Ack& ack, v1::WorkerMessage& message) {
  Name(ack.id, ack.generation, message);
  message.mutable_ack()->set_assignment_hash(ack.hash);
}

void Write(const rendezvous::Heartbeat& beat, v1::WorkerMessage& message) {
  Name(beat.id, beat.generation, message);
  message.mutable_heartbeat()->set_step(beat.progress.step);
  message.mutable_heartbeat()->set_phase(WireText(beat.progress.phase));
  if (beat.progress.peak_bytes >= 0) message.mutable_heartbeat()->set_peak_bytes(beat.progress.peak_bytes);
}

void Write(const rendezvous::ReportFailure& report, v1::WorkerMessage& message) {
  Name(report.id, report.generation, message);
  v1::FailureReport& failure = *message.mutable_failure();
  failure.set_step(report.failure.step);
  failure.set_axis(WireText(report.failure.axis));
  failure.set_message(WireText(report.failure.message));
  failure.set_peer_failed(report.failure.peer_failed);
  if (report.failure.exit_code) failure.set_exit_code(*report.failure.exit_code);
}

void Write(const rendezvous::Leave& leave, v1::WorkerMessage& message) {
  Name(leave.id, leave.generation, message);
  message.mutable_leave()->set_stopped(leave.kind == rendezvous::LeaveKind::kStopped);
}

}  // namespace

absl::Status FromGrpc(const grpc::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(what, ": ", status.error_message()));
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

bool IsRefusal(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:  // a message that is too large stays so
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::UNIMPLEMENTED:
      return true;
    case grpc::StatusCode::DEADLINE_EXCEEDED:  // the node was lost
      return true;
    default:
      return false;
  }
}

v1::DirectiveMessage::Kind ToWire(DirectiveKind kind) {
  switch (kind) {
    case DirectiveKind::kSave:
      return v1::DirectiveMessage::SAVE_NOW;
    case DirectiveKind::kStopAfterSave:
      return v1::DirectiveMessage::STOP_AFTER_SAVE;
    case DirectiveKind::kAbort:
      return v1::DirectiveMessage::ABORT;
    default:
      return v1::DirectiveMessage::NONE;
  }
}

DirectiveKind FromWire(v1::DirectiveMessage::Kind kind) {
  switch (kind) {
    case v1::DirectiveMessage::SAVE_NOW:
      return DirectiveKind::kSave;
    case v1::DirectiveMessage::STOP_AFTER_SAVE:
      return DirectiveKind::kStopAfterSave;
    case v1::DirectiveMessage::ABORT:
      return DirectiveKind::kAbort;
    default:
      return DirectiveKind::kNone;
  }
}

std::string WireText(absl::string_view text) {
  return launcher::PrintableText(text.substr(0, kMaxTextBytes), /*keep_newlines=*/true);
}

std::optional<rendezvous::Event> EventOf(const v1::WorkerMessage& message) {
  const rendezvous::MemberId id{message.member(), message.header().incarnation()};
  switch (message.body_case()) {
    case v1::WorkerMessage::kJoin:
      return rendezvous::Join{id, message.join().pid()};
    case v1::WorkerMessage::kAck:
      return rendezvous::Ack{id, message.header().generation(), message.ack().assignment_hash()};
    case v1::WorkerMessage::kHeartbeat: {
      const v1::Heartbeat& beat = message.heartbeat();
      return rendezvous::Heartbeat{
          id,
          message.header().generation(),
          {beat.step(), beat.phase(), beat.has_peak_bytes() ? beat.peak_bytes() : -1}};
    }
    case v1::WorkerMessage::kFailure: {
      const v1::FailureReport& report = message.failure();
      Failure failure{-1, report.step(), report.axis(), report.message(), report.peer_failed()};
      if (report.has_exit_code()) failure.exit_code = report.exit_code();
      return rendezvous::ReportFailure{id, message.header().generation(), std::move(failure)};
    }
    case v1::WorkerMessage::kLeave:
      return rendezvous::Leave{
          id, message.header().generation(),
          message.leave().stopped() ? rendezvous::LeaveKind::kStopped : rendezvous::LeaveKind::kFinished};
    case v1::WorkerMessage::BODY_NOT_SET:
      break;
  }
  return std::nullopt;
}

v1::WorkerMessage MessageOf(const rendezvous::WorkerWords& words, const Launch& launch) {
  v1::WorkerMessage message;
  message.set_protocol_version(kProtocolVersion);
  *message.mutable_header() = MakeHeader(launch, 0, 0);
  std::visit([&](const auto& what) { Write(what, message); }, words);
  return message;
}

std::optional<rendezvous::WorkerOrder> OrderOf(const v1::CoordinatorMessage& message) {
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kPrepare: {
      const v1::Prepare& prepare = message.prepare();
      return rendezvous::Prepared{message.header().generation(), prepare.assignment(),
                                  prepare.assignment_hash(),
                                  absl::Milliseconds(prepare.heartbeat_interval_ms())};
    }
    case v1::CoordinatorMessage::kGo:
      return rendezvous::Went{message.header().generation()};
    case v1::CoordinatorMessage::kDirective:
      return rendezvous::Directed{FromWire(message.directive().kind()), message.directive().reason(),
                                  message.header().generation()};
    case v1::CoordinatorMessage::kReject:
      return rendezvous::Rejected{message.reject().reason(), message.reject().rejoin()};
    case v1::CoordinatorMessage::BODY_NOT_SET:
      break;
  }
  return std::nullopt;
}

}  // namespace trainctl::rpc
