// Internal to lib/rpc: the coordinator's session with one agent, over streams that may break and be replaced.
// Messages that the agent has not acknowledged are resent over the next stream. Thread-safe.
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

// One stream from an agent. Owned by gRPC until OnDone.
class AgentStream : public grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentOrder> {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(AgentStream* stream, const v1::AgentMessage& message) = 0;
    // Called when the stream has ended. The handler must drop its pointer to the stream.
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

  // The agent's session, set when its first message arrives. Only the handler sets and uses it, in OnMessage
  // and OnClosed.
  AgentSession* session = nullptr;

 private:
  friend class AgentSession;
  Handler* const handler_;
  const std::string node_;
  const std::string certificate_;
  v1::AgentMessage incoming_;
  v1::AgentOrder outgoing_;  // order being written; guarded by the session's lock
  std::mutex mutex_;
  bool is_finished_ = false;
};

class AgentSession : public MemberSink {
 public:
  // Creates the session of `node`'s agent. All messages to the agent carry `header`.
  AgentSession(std::string node, v1::Header header, absl::Duration now)
      : node_(std::move(node)), header_(std::move(header)) {
    Hear(now);
  }

  const std::string& node() const { return node_; }

  // ---- messages to the agent
  void Send(v1::AgentOrder order);
  void SendTo(const std::string& member, int64_t incarnation, const v1::CoordinatorMessage& message) override;
  // Switches to this stream, on which it first resends the orders after `acked`, the last one that the agent
  // has acknowledged. Ends any earlier stream.
  void Attach(AgentStream* stream, uint64_t acked);
  // Notes that a stream has closed. Returns false if it was not the current stream.
  bool Detach(AgentStream* stream, absl::Duration now);
  void OnWritten(AgentStream* stream, bool ok);
  // Ends the session. No further messages are sent.
  void End(const grpc::Status& status);

  // ---- messages from the agent
  // Calls `carry_out` if the message is new, then acknowledges the message. Handles one message at a time,
  // even while an old stream is still being read. Returns false if an earlier message is missing.
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
  // The time at which the agent lost its stream, or nullopt if it has one.
  std::optional<absl::Duration> away_since() const;

  // Whether the agent has announced that it is leaving for good.
  std::atomic<bool> is_leaving{false};

 private:
  void NoteAcked(uint64_t seq);
  void AcknowledgeTaken(bool is_beat);
  void Pump();

  const std::string node_;
  const v1::Header header_;
  std::atomic<int64_t> last_heard_ms_{0};

  std::mutex reading_mutex_;  // held while a message is being handled; acquired before mutex_
  Inbox inbox_;

  mutable std::mutex mutex_;
  Outbox<v1::AgentOrder> outbox_;
  AgentStream* stream_ = nullptr;
  bool is_writing_ = false;
  bool is_ended_ = false;
  absl::Duration away_since_;
  uint64_t carried_out_ = 0;  // sequence number of the last message handled
  bool must_answer_ = false;
};

}  // namespace trainctl::rpc
