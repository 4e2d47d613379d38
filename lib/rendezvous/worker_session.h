// A worker's side of the rendezvous as a pure state machine: what it tells its agent and when, and what it
// makes of the answers. No sockets, no clock, no threads: the caller carries the words, in order, and the
// time between heartbeats. Its incarnation is the attempt that the coordinator started it in, so that no
// clock has a say in which of two processes is the newer one. Not thread safe.
//
//   joining ──Prepared──▶ prepared (acknowledged) ──Went──▶ running ──Leave or Fail──▶ closing
//                             ▲            │ Prepared of a newer generation
//                             └────────────┘                       lost: from anywhere, for good
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

// ---- what a worker is told ----------------------------------------------------------------------
struct Prepared {
  int64_t generation = 0;
  std::string assignment;  // as SerializeAssignment wrote it
  uint64_t assignment_hash = 0;
  absl::Duration heartbeat_interval = absl::ZeroDuration();  // zero: as before
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

// What it tells: events of the coordinator.
using WorkerWords = std::variant<Join, Ack, Heartbeat, ReportFailure, Leave>;

class WorkerSession {
 public:
  // Has its join to tell.
  WorkerSession(MemberId id, int64_t pid);

  void Receive(const WorkerOrder& order);
  // The launcher is gone, say. The first reason stays.
  void Lose(const std::string& reason);

  void Report(const Progress& progress);
  // The last word, after what was reported. False: one was said before, and this one is not.
  bool Say(const Failure& failure);
  bool Say(LeaveKind kind);

  // Something is to be told now, without waiting for the next heartbeat.
  bool HasWords() const { return !words_.empty() || (progress_waits_ && running_); }
  // The next words; when there are none, a heartbeat. Not once closing() and all is told.
  WorkerWords TakeWords();

  // A last word was said; nothing but what waits is told after it.
  bool closing() const { return closing_; }
  bool running() const { return running_; }
  // Why this process is of no more use; empty: it is not lost.
  const std::string& lost() const { return lost_; }
  const WorldAssignment& world() const { return world_; }  // of the last Prepared
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
