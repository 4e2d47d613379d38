#include "rpc/wire.h"

#include "absl/strings/str_cat.h"
#include "launcher/printable_text.h"

namespace trainctl::rpc {

absl::Status FromGrpc(const grpc::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(what, ": ", status.error_message()));
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
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
  const rendezvous::MemberId id{message.member(), message.incarnation()};
  switch (message.body_case()) {
    case v1::WorkerMessage::kJoin:
      return rendezvous::Join{id, message.join().pid()};
    case v1::WorkerMessage::kAck:
      return rendezvous::Ack{id, message.generation(), message.ack().assignment_hash()};
    case v1::WorkerMessage::kHeartbeat: {
      const v1::Heartbeat& beat = message.heartbeat();
      return rendezvous::Heartbeat{
          id,
          message.generation(),
          {beat.step(), beat.phase(), beat.has_peak_bytes() ? beat.peak_bytes() : -1}};
    }
    case v1::WorkerMessage::kFailure: {
      const v1::FailureReport& report = message.failure();
      return rendezvous::ReportFailure{
          id, message.generation(),
          Failure{-1, report.step(), report.axis(), report.message(), report.peer_failed()}};
    }
    case v1::WorkerMessage::kLeave:
      return rendezvous::Leave{
          id, message.generation(),
          message.leave().stopped() ? rendezvous::LeaveKind::kStopped : rendezvous::LeaveKind::kFinished};
    case v1::WorkerMessage::BODY_NOT_SET:
      break;
  }
  return std::nullopt;
}

}  // namespace trainctl::rpc
