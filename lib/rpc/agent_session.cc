#include "rpc/agent_session.h"

#include <utility>

namespace trainctl::rpc {

AgentStream::AgentStream(Handler* handler, std::string node, std::string certificate)
    : handler_(handler), node_(std::move(node)), certificate_(std::move(certificate)) {
  StartRead(&incoming_);
}

AgentStream::AgentStream(const grpc::Status& refusal) : handler_(nullptr) { Finish(refusal); }

void AgentStream::End(const grpc::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(is_finished_, true)) return;
  }
  Finish(status);  // without the lock: OnDone may come, and take the lock along, before this returns
}

void AgentStream::OnReadDone(bool ok) {
  if (!ok) {
    handler_->OnClosed(this);
    return End(grpc::Status::OK);
  }
  handler_->OnMessage(this, incoming_);
  StartRead(&incoming_);
}

void AgentStream::OnWriteDone(bool ok) {
  if (session != nullptr) session->OnWritten(this, ok);
}

void AgentSession::Send(v1::AgentOrder order) {
  std::lock_guard lock(mutex_);
  if (is_ended_) return;
  outbox_.Add(std::move(order));
  Pump();
}

void AgentSession::SendTo(const std::string& member, int64_t incarnation,
                          const v1::CoordinatorMessage& message) {
  v1::AgentOrder order;
  order.mutable_member()->set_member(member);
  order.mutable_member()->set_incarnation(incarnation);
  *order.mutable_member()->mutable_message() = message;
  Send(std::move(order));
}

void AgentSession::Attach(AgentStream* stream, uint64_t acked) {
  std::lock_guard lock(mutex_);
  if (stream_ != nullptr) {
    stream_->End({grpc::StatusCode::ABORTED, "the agent has opened another stream"});
  }
  stream_ = stream;
  is_writing_ = false;
  must_answer_ = true;
  outbox_.Acknowledge(acked);
  outbox_.Connect();
  Pump();
}

bool AgentSession::Detach(AgentStream* stream, absl::Duration now) {
  std::lock_guard lock(mutex_);
  if (stream_ != stream) return false;
  stream_ = nullptr;
  is_writing_ = false;
  away_since_ = now;
  outbox_.Disconnect();
  return true;
}

void AgentSession::OnWritten(AgentStream* stream, bool ok) {
  std::lock_guard lock(mutex_);
  if (stream_ != stream) return;
  is_writing_ = false;
  if (ok) Pump();
}

void AgentSession::End(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  is_ended_ = true;
  // Not touched after this lock: its end may come at any time. Detach comes first.
  if (stream_ != nullptr) stream_->End(status);
}

std::optional<absl::Duration> AgentSession::away_since() const {
  std::lock_guard lock(mutex_);
  if (stream_ != nullptr) return std::nullopt;
  return away_since_;
}

void AgentSession::NoteAcked(uint64_t seq) {
  std::lock_guard lock(mutex_);
  outbox_.Acknowledge(seq);
}

void AgentSession::AcknowledgeTaken(bool is_beat) {
  std::lock_guard lock(mutex_);
  if (inbox_.last() > carried_out_ || is_beat) must_answer_ = true;
  carried_out_ = inbox_.last();
  Pump();
}

// Requires mutex_. An agent that does not read piles up no acknowledgements: they ride on the next order.
void AgentSession::Pump() {
  if (stream_ == nullptr || is_writing_ || is_ended_) return;
  if (const v1::AgentOrder* next = outbox_.Next(); next != nullptr) {
    stream_->outgoing_ = *next;
  } else if (must_answer_) {
    stream_->outgoing_.Clear();
  } else {
    return;
  }
  *stream_->outgoing_.mutable_header() = header_;
  stream_->outgoing_.set_acked(carried_out_);
  must_answer_ = false;
  is_writing_ = true;
  stream_->StartWrite(&stream_->outgoing_);
}

}  // namespace trainctl::rpc
