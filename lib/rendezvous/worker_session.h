// The worker's side of the rendezvous as a pure state machine, which decides when to send which message to
// the agent and how to handle the replies. It owns no sockets, clocks or threads: the caller transports the
// messages in order and times the heartbeats. The incarnation is the attempt in which the coordinator started
// this process, so the order of two processes never depends on a clock. Not thread-safe.
//
//   joining ──Prepared──▶ prepared (acknowledged) ──Went──▶ running ──Leave or Fail──▶ closing
//                             ▲            │ Prepared of a newer generation
//                             └────────────┘                       any state ──Lose──▶ lost (final)
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "base/control_channel.h"
#include "rendezvous/assignment.h"
#include "rendezvous/coordinator.h"

namespace trainctl::rendezvous {

// ---- messages to a worker -----------------------------------------------------------------------
struct Prepared {
  int64_t generation = 0;
  std::string assignment;  // output of SerializeAssignment
  uint64_t assignment_hash = 0;
  absl::Duration heartbeat_interval = absl::ZeroDuration();  // unchanged if zero
};
struct Went {
  int64_t generation = 0;
};
struct Directed {
  DirectiveKind kind = DirectiveKind::kNone;
  std::string reason;
  int64_t generation = 0;
};
struct Rejected {
  std::string reason;
  bool rejoin = false;
};
using WorkerOrder = std::variant<Prepared, Went, Directed, Rejected>;

// Messages from a worker, which are events of the coordinator.
using WorkerWords = std::variant<Join, Ack, Heartbeat, ReportFailure, Leave>;

class WorkerSession {
 public:
  // Starts a session whose first message is the Join.
  WorkerSession(MemberId id, int64_t pid);

  void Receive(const WorkerOrder& order);
  // Marks the session as lost, for example because the launcher is gone. Keeps only the first reason.
  void Lose(const std::string& reason);

  void Report(const Progress& progress);
  // Queues the worker's last message, which is sent after all reports. If a last message was already queued,
  // does nothing and returns false.
  bool Say(const Failure& failure);
  bool Say(LeaveKind kind);

  // Whether a message should be sent now rather than with the next heartbeat.
  bool HasWords() const { return !words_.empty() || (progress_waits_ && running_); }
  // Returns the next message, or a heartbeat if no message is queued. Do not call this once closing() is true
  // and all messages are sent.
  WorkerWords TakeWords();

  // Whether the last message was queued. After that, only the remaining queued messages are sent.
  bool closing() const { return closing_; }
  bool running() const { return running_; }
  // Why the session is lost; empty if it is not.
  const std::string& lost() const { return lost_; }
  const WorldAssignment& world() const { return world_; }  // from the last Prepared
  int64_t generation() const { return generation_; }
  absl::Duration heartbeat_interval() const { return heartbeat_interval_; }
  const Directive& directive() const { return directive_; }

 private:
  void On(const Prepared& order);
  void On(const Went& order);
  void On(const Directed& order);
  void On(const Rejected& order);
  Heartbeat MakeHeartbeat();
  bool SayLast(WorkerWords words);

  const MemberId id_;
  const int64_t pid_;
  std::deque<WorkerWords> words_;
  bool running_ = false;
  bool closing_ = false;
  std::string lost_;
  int64_t generation_ = 0;
  WorldAssignment world_;
  absl::Duration heartbeat_interval_ = absl::Milliseconds(100);
  Directive directive_;
  Progress progress_{-1, "startup"};
  bool progress_waits_ = false;
};

}  // namespace trainctl::rendezvous
