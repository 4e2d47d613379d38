// Internal to lib/rpc: delivers messages reliably and in order over connections that may break and be
// replaced. The sender numbers its messages from 1 and keeps each one until the receiver has acknowledged it.
// Over a new connection it resends the unacknowledged messages, and the receiver skips those it already has.
// Transient messages (a heartbeat, or a state that the next message replaces) have number 0 and are not
// resent. These classes use no connections, clocks or threads. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace trainctl::rpc {

// `Message` must have seq() and set_seq().
template <typename Message>
class Outbox {
 public:
  // Adds a message and returns its number.
  uint64_t Add(Message message) {
    message.set_seq(++last_);
    kept_.push_back(std::move(message));
    return last_;
  }
  // Adds a transient message, which is dropped if there is no connection.
  void AddOfTheMoment(Message message) {
    if (!is_connected_) return;
    message.set_seq(0);
    kept_.push_back(std::move(message));
  }

  // Starts a new connection, over which Next returns all unacknowledged messages again.
  void Connect() {
    Disconnect();
    is_connected_ = true;
  }
  void Disconnect() {
    std::erase_if(kept_, [](const Message& message) { return message.seq() == 0; });
    next_ = 0;
    is_connected_ = false;
  }
  // Returns the next message to send, or nullptr if there is none. The pointer is valid until the next call.
  const Message* Next() {
    if (!is_connected_ || next_ == kept_.size()) return nullptr;
    return &kept_[next_++];
  }
  // Notes that the receiver has all messages up to `seq`. Calls `forget` for each message that is dropped, in
  // order.
  template <typename Forget>
  void Acknowledge(uint64_t seq, const Forget& forget) {
    if (seq <= last_ && seq > acked_) acked_ = seq;
    while (!kept_.empty()) {
      const uint64_t front = kept_.front().seq();
      if (front == 0 ? next_ == 0 : front > acked_) break;
      forget(kept_.front());
      kept_.pop_front();
      if (next_ > 0) --next_;
    }
  }
  void Acknowledge(uint64_t seq) {
    Acknowledge(seq, [](const Message&) {});
  }

  uint64_t acked() const { return acked_; }
  bool is_all_acked() const { return acked_ == last_; }

 private:
  std::deque<Message> kept_;
  size_t next_ = 0;  // index into kept_ of the next message to send
  uint64_t last_ = 0;
  uint64_t acked_ = 0;
  bool is_connected_ = false;
};

class Inbox {
 public:
  enum class Verdict {
    kNew,       // the caller must handle the message
    kRepeated,  // the message was already handled
    kGap,       // an earlier message is missing, which is a bug in the sender
  };
  Verdict Take(uint64_t seq) {
    if (seq == 0) return Verdict::kNew;
    if (seq <= last_) return Verdict::kRepeated;
    if (seq > last_ + 1) return Verdict::kGap;
    last_ = seq;
    return Verdict::kNew;
  }
  uint64_t last() const { return last_; }

 private:
  uint64_t last_ = 0;
};

}  // namespace trainctl::rpc
