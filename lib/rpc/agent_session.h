// Internal to lib/rpc: the coordinator's conversation with one agent, over streams that come and go. What one
// has said and the other has not acknowledged is said again over the next stream. Thread safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/trainctl.pb.h"
#include "rpc/numbered.h"
#include "rpc/worker_stream.h"

namespace trainctl::rpc {

class AgentSession;

// One stream of an agent. Owned by gRPC until OnDone.
class AgentStream : public grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentOrder> {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(AgentStream* stream, const v1::AgentMessage& message) = 0;
    // Nothing more comes. The handler lets go of the stream.
    virtual void OnClosed(AgentStream* stream) = 0;
  };

  AgentStream(Handler* handler, std::string node, std::string certificate);
  explicit AgentStream(const grpc::Status& refusal);

  const std::string& node() const { return node_; }
  const std::string& certificate() const { return certificate_; }
  void End(const grpc::Status& status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }

  // Once it has said hello. Set and used by the handler, in OnMessage and OnClosed.
  AgentSession* session = nullptr;

 private:
  friend class AgentSession;
  Handler* const handler_;
  const std::string node_;
  const std::string certificate_;
  v1::AgentMessage incoming_;
  v1::AgentOrder outgoing_;  // being written; the session's lock guards it
  std::mutex mutex_;
  bool is_finished_ = false;
};

class AgentSession : public MemberSink {
 public:
  // `header`: of all messages, both ways.
  AgentSession(std::string node, v1::Header header, absl::Duration now)
      : node_(std::move(node)), header_(std::move(header)) {
    Hear(now);
  }

  const std::string& node() const { return node_; }

  // ---- to the agent
  void Send(v1::AgentOrder order);
  void SendTo(const std::string& member, int64_t incarnation, const v1::CoordinatorMessage& message) override;
  // From now on over this stream, after the orders that have come; the stream before, if there is any, ends.
  void Attach(AgentStream* stream, uint64_t acked);
  // False: it was not the current one.
  bool Detach(AgentStream* stream, absl::Duration now);
  void OnWritten(AgentStream* stream, bool ok);
  // Nothing is sent any more.
  void End(const grpc::Status& status);

  // ---- from the agent
  // Calls `carry_out` if the message is new, and then acknowledges it. One after the other, even if an old
  // stream is still being read. False: one before it is missing.
  template <typename CarryOut>
  bool Take(const v1::AgentMessage& message, const CarryOut& carry_out) {
    std::lock_guard reading(reading_mutex_);
    NoteAcked(message.acked());
    const Inbox::Verdict verdict = inbox_.Take(message.seq());
    if (verdict == Inbox::Verdict::kGap) return false;
    if (verdict == Inbox::Verdict::kNew) carry_out();
    AcknowledgeTaken(message.has_beat());
    return true;
  }
  void Hear(absl::Duration now) { last_heard_ms_ = absl::ToInt64Milliseconds(now); }
  absl::Duration last_heard() const { return absl::Milliseconds(last_heard_ms_.load()); }
  // Since when it has no stream; nullopt: it has one.
  std::optional<absl::Duration> away_since() const;

  // It has said so, and will not come back.
  std::atomic<bool> is_leaving{false};

 private:
  void NoteAcked(uint64_t seq);
  void AcknowledgeTaken(bool is_beat);
  void Pump();

  const std::string node_;
  const v1::Header header_;
  std::atomic<int64_t> last_heard_ms_{0};

  std::mutex reading_mutex_;  // held while a message is carried out; before mutex_
  Inbox inbox_;

  mutable std::mutex mutex_;
  Outbox<v1::AgentOrder> outbox_;
  AgentStream* stream_ = nullptr;
  bool is_writing_ = false;
  bool is_ended_ = false;
  absl::Duration away_since_;
  uint64_t carried_out_ = 0;  // the last message that was
  bool must_answer_ = false;
};

}  // namespace trainctl::rpc
