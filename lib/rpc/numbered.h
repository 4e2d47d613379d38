// Internal to lib/rpc: two ends that talk over connections that come and go, and hear each message once and
// in order. What is sent is numbered from 1 and kept until the other end has acknowledged it; on a new
// connection the rest is sent again, and the receiver passes over what it has. Messages of the moment (a
// heartbeat, what is overtaken by the next of its kind) have the number 0 and are not sent again. Without
// connections, time or threads; not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace trainctl::rpc {

// `Message` has seq() and set_seq().
template <typename Message>
class Outbox {
 public:
  // Returns its number.
  uint64_t Add(Message message) {
    message.set_seq(++last_);
    kept_.push_back(std::move(message));
    return last_;
  }
  // Without a connection it is lost.
  void AddOfTheMoment(Message message) {
    if (!is_connected_) return;
    message.set_seq(0);
    kept_.push_back(std::move(message));
  }

  // A new connection, over which everything that is not acknowledged is sent again.
  void Connect() {
    Disconnect();
    is_connected_ = true;
  }
  void Disconnect() {
    std::erase_if(kept_, [](const Message& message) { return message.seq() == 0; });
    next_ = 0;
    is_connected_ = false;
  }
  // What to send now; nullptr: nothing. Valid until the next call.
  const Message* Next() {
    if (!is_connected_ || next_ == kept_.size()) return nullptr;
    return &kept_[next_++];
  }
  // The other end has all up to `seq`: `forget` is called for each, in order.
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
  size_t next_ = 0;  // in kept_; those before are sent
  uint64_t last_ = 0;
  uint64_t acked_ = 0;
  bool is_connected_ = false;
};

class Inbox {
 public:
  enum class Verdict {
    kNew,       // to be carried out
    kRepeated,  // it was already
    kGap,       // one before it never came: the other end is broken
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
