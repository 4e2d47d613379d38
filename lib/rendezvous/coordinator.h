// A job's membership as a pure state machine, which tracks the members that have joined, the current
// generation and the first failure, and decides which messages the workers receive. It owns no sockets,
// clocks or threads: the caller passes in the time and an event, and executes the commands of the returned
// decision. The decision also contains its reason. The same sequence of (time, event) pairs always yields the
// same decisions. Time must not go backward. Not thread-safe.
//
// With n members, a message or a tick costs O(log n), plus the commands it causes (one broadcast per phase of
// an attempt). The failure that ends an attempt and Members() cost O(n).
//
//   Expect ──▶ gathering ──all joined──▶ preparing ──all acknowledged──▶ recording ──Recorded──▶ running
//                  ▲                         │                                                      │
//                  └── no acknowledgement ───┘                                                      │
//                      (new generation)                                                             │
//                                                             failed ◀──first failure, in any phase─┤
//                                                             finished ◀──────────────all have left─┘
//
// Invariants (tests/unit/rendezvous/simulation_test.cc): within a generation, ranks are unique and dense;
// generations only increase; messages from an older incarnation or generation have no effect. No member
// starts before every member has acknowledged the same assignment and the generation is recorded. A new
// launcher therefore never reuses a generation that a killed launcher's workers may still be using.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/control_channel.h"
#include "rendezvous/assignment.h"

namespace trainctl::rendezvous {

// All timeouts derive from detect_timeout, so their relative order holds for every setting.
struct Timeouts {
  absl::Duration heartbeat_interval;  // at most detect / 6, so a member survives five lost heartbeats
  absl::Duration detect;              // silence after which a member is considered failed
  absl::Duration ack;                 // from PREPARE to the last ACK
  absl::Duration join;                // from Expect to the last join; loading a program can be slow
  // How long to wait for the root cause after an echo, or after the exit of a member that was waiting for
  // others. The wait is shorter once every member has reported. After such an exit it is also shorter if all
  // the other members are still alive.
  absl::Duration echo;
  // How long to wait, after a failure report or an exit, for the crash that explains it. A surviving process
  // can notice a broken connection and exit before the agent notices that its peer has died.
  absl::Duration settle;
  absl::Duration tick;  // interval at which the caller must submit Tick
  // Added to `detect` for members that are heard through a node's agent. If a node goes silent, its agent's
  // silence is therefore detected first, and the reported failure names the node.
  absl::Duration relay;
  // How long an agent may take to reconnect after its connection breaks. This allows for several attempts,
  // because one attempt can lose packets.
  absl::Duration away;
  // Silence after which an agent opens a new connection. If the coordinator does not answer on it either, the
  // agent retries after half this time.
  absl::Duration redial;
  // Silence after which the keeper kills its agent. By then the coordinator has given up on the node and may
  // start its workers elsewhere.
  absl::Duration keeper;
  // How long a node may take to show the stacks of all its workers when one hangs. The hung rank is already
  // known, so it does not matter if other ranks give up waiting in the meantime. After another `detect`, the
  // attempt ends whether or not the nodes have reported.
  absl::Duration stacks;

  static Timeouts FromDetect(absl::Duration detect);
  // The value of `relay` for a job whose nodes run agents.
  absl::Duration RelayOfAgents() const { return 2 * heartbeat_interval; }
};

// The sender of a message: a member, and the incarnation of its process.
struct MemberId {
  std::string member;
  int64_t incarnation = 0;
};

enum class LeaveKind { kFinished, kStopped };
enum class StopMode { kNone, kAfterSave, kNow };

// ---- events -------------------------------------------------------------------------------------
struct Expect {  // starts a new attempt with these slots and forgets all earlier members
  std::vector<Slot> slots;
  int64_t attempt = 0;  // attempt number, which notices repeat
};
struct Join {
  MemberId id;
  int64_t pid = 0;
};
struct Ack {
  MemberId id;
  int64_t generation = 0;
  uint64_t hash = 0;
};
struct Heartbeat {
  MemberId id;
  int64_t generation = 0;
  Progress progress;
};
struct ReportFailure {
  MemberId id;
  int64_t generation = 0;
  Failure failure;
};
struct Leave {
  MemberId id;
  int64_t generation = 0;
  LeaveKind kind = LeaveKind::kFinished;
};
// The agent has observed the process exit. `description` reads, for example, "killed by SIGSEGV (11)" or
// "exited with code 3".
struct Exited {
  std::string member;
  bool clean = false;  // exit code 0 or 75
  // Whether it was terminated by a signal that its own code does not raise on purpose (SIGKILL, SIGSEGV,
  // ...).
  bool crashed = false;
  std::string description;
  // Progress that the agent has seen, in case it is ahead of the last heartbeat.
  Progress last{-1, ""};
  // Whether its exit code says that it only failed because another member did.
  bool echo = false;
  // Whether the signal was SIGKILL, which always comes from outside and is never caused by another rank's
  // failure.
  bool killed = false;
  // Whether its board says that it was waiting for other members when it exited, so one of them may be the
  // cause.
  bool waited = false;
};
// The caller has written the generation of a Notice::Kind::kPrepared to disk.
struct Recorded {
  int64_t generation = 0;
};
// A member makes no progress, although its process may be alive. `last` is as in Exited. The other members
// are not notified, so their stacks still show what they are waiting for; the job's owner then ends them.
struct Hung {
  std::string member;
  std::string description;  // "stood still for 61 s ..."
  Progress last{-1, ""};
};
struct StopRequest {
  StopMode mode = StopMode::kAfterSave;
  std::string reason;
};
struct Tick {};

// Requests a checkpoint after the current step.
struct SaveRequest {};
using Event = std::variant<Expect, Join, Ack, Recorded, Heartbeat, ReportFailure, Leave, Exited, Hung,
                           StopRequest, SaveRequest, Tick>;

// ---- decisions ----------------------------------------------------------------------------------
// A message to one member. Losing it is harmless, because the member rejoins and receives the current
// messages again.
struct Command {
  enum class Kind { kPrepare, kGo, kDirective, kReject };
  Kind kind = Kind::kPrepare;
  MemberId to;
  int64_t generation = 0;
  Directive directive;  // kDirective
  std::string reason;   // kReject
  // For kReject, whether the member should rejoin. If false, its process is obsolete.
  bool rejoin = false;
};

// A message to the job's owner.
struct Notice {
  enum class Kind {
    // All members have acknowledged the assignment. Record the generation, then submit Recorded.
    kPrepared,
    kProgress,
    // A member has finished and saved all its work. It only has to exit, no matter how.
    kLeft,
    kGivenUp,  // a member has given up waiting for another
    kFailed,
    kFinished,
    kStopRequested,
  };
  Kind kind = Kind::kPrepared;
  int64_t attempt = 0;  // attempt number from Expect; 0 before the first
  int64_t generation = 0;
  Failure failure;  // kFailed: the rank (-1 before an assignment), step and message
  // For kFailed, whether the member hangs. If so, the other members have not been notified, so their stacks
  // still show what they are waiting for.
  bool is_hang = false;
  std::string member;    // kFailed, kProgress, kLeft, kGivenUp
  int rank = -1;         // kProgress, kLeft
  Progress progress;     // kProgress
  bool stopped = false;  // kFinished: whether the job stopped on request before its last step
  StopMode stop = StopMode::kNone;
  std::string reason;  // kStopRequested
};

struct Decision {
  std::vector<Command> commands;
  std::vector<Notice> notices;
  std::string reason;  // why, with the counts that led to the decision
};

struct MemberView {
  Slot slot;
  int64_t incarnation = 0;
  int64_t pid = 0;
  int rank = -1;
  Progress progress;
  std::string state;  // "expected", "joined", "prepared", "running", "finished", "stopped" or "exited"
  absl::Duration silent;
};

class Coordinator {
 public:
  // Coordinates the launch with the given term. The first assignment gets generation `last_generation` + 1;
  // `last_generation` comes from the run's journal.
  Coordinator(Timeouts timeouts, int64_t term, int64_t last_generation);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  Decision Decide(absl::Duration now, const Event& event);

  int64_t generation() const { return generation_; }
  bool running() const { return phase_ == Phase::kRunning; }
  std::string phase_name() const;
  StopMode stop() const { return stop_; }
  // The serialized current assignment; empty before the first one.
  const std::string& assignment_bytes() const { return assignment_bytes_; }
  uint64_t assignment_hash() const { return assignment_hash_; }
  std::vector<MemberView> Members(absl::Duration now) const;
  const Timeouts& timeouts() const { return timeouts_; }

 private:
  enum class Phase { kIdle, kGathering, kPreparing, kRecording, kRunning, kFailed, kFinished };
  // All times below are the `now` passed to Decide minus `lost_`.
  struct Member {
    Slot slot;
    size_t index = 0;  // index into order_
    bool joined = false;
    int64_t incarnation = 0;
    int64_t pid = 0;
    bool acked = false;
    int rank = -1;
    absl::Duration last_heard;
    Progress progress;
    std::optional<LeaveKind> left;
    bool exited = false;
    std::optional<std::list<Member*>::iterator> heard_at;  // iterator into heard_, if the member is in it
    std::optional<size_t> candidate;  // index into candidates_, if its failure is in there
  };
  // How well a failure explains the others, from best to worst.
  enum Weight {
    kCause,
    // A failure of a member that was waiting for others, which a broken collective can cause to fail in any
    // way.
    kWaited,
    kEcho,  // a failure that declares itself the result of another one
    kNumWeights
  };
  struct Candidate {  // a failure for which a better explanation may still arrive
    Failure failure;
    std::string member;
    Weight weight = kCause;
    absl::Duration since;
    bool from_exit = false;  // true if only its exit code is known
  };

  void On(absl::Duration now, const Expect& event, Decision& out);
  void On(absl::Duration now, const Join& event, Decision& out);
  void On(absl::Duration now, const Ack& event, Decision& out);
  void On(absl::Duration now, const Recorded& event, Decision& out);
  void On(absl::Duration now, const Heartbeat& event, Decision& out);
  void On(absl::Duration now, const ReportFailure& event, Decision& out);
  void On(absl::Duration now, const Leave& event, Decision& out);
  void On(absl::Duration now, const Exited& event, Decision& out);
  void On(absl::Duration now, const Hung& event, Decision& out);
  void On(absl::Duration now, const StopRequest& event, Decision& out);
  void On(absl::Duration now, const SaveRequest& event, Decision& out);
  void On(absl::Duration now, const Tick& event, Decision& out);

  // Returns the member if `id` is its current incarnation (and `generation` the current generation).
  // Otherwise returns null, puts the reason in `out`, and sends kReject to a member of an older incarnation
  // or generation.
  Member* Current(const MemberId& id, Decision& out);
  Member* Current(const MemberId& id, int64_t generation, Decision& out);
  void Hear(absl::Duration now, Member& member);
  // Extends all deadlines by `gap`, the time since the last tick, because this process did not run in
  // between.
  void GrantGap(absl::Duration gap);
  // Returns the first member, in slot order, that has been silent for longer than `detect`, or null.
  const Member* FindSilent(absl::Duration now);
  // Calls `visit` with each member that was last heard before `time` and can be blamed for its silence, in
  // order of decreasing silence, until `visit` returns false.
  template <typename Visit>
  void VisitUnheard(absl::Duration time, Visit visit);
  // Whether to report this candidate now instead of waiting for a better explanation.
  bool IsSettled(absl::Duration now, const Candidate& candidate);
  // Whether every member that has not reported, left or exited was heard after `time`, which rules out a lost
  // node.
  bool AllHeardSince(absl::Duration time);
  void MaybePrepare(absl::Duration now, Decision& out);
  void SendPrepare(const Member& member, Decision& out) const;
  void SendDirectives(const Member& member, Decision& out) const;
  void Broadcast(const Directive& directive, Decision& out) const;
  void MaybeFinish(Decision& out);
  void Consider(absl::Duration now, Member& member, Failure failure, bool from_exit, bool waited,
                Decision& out);
  void Withdraw(Member& member);
  // Returns the earliest candidate with the best weight, or null if there are no candidates.
  const Candidate* BestCandidate() const;
  // Ends the attempt with the given failure and notifies the members.
  void Fail(const std::string& member, Failure failure, Decision& out);
  void NameCulprit(const std::string& member, Failure failure, Decision& out);
  void FailMissing(Decision& out);
  bool Live() const;  // whether an attempt is under way
  MemberId IdOf(const Member& member) const { return {member.slot.member, member.incarnation}; }

  const Timeouts timeouts_;
  Phase phase_ = Phase::kIdle;
  int64_t attempt_ = 0;
  const int64_t term_;
  int64_t generation_;
  std::map<std::string, Member> members_;
  std::vector<Member*> order_;  // members in slot order, which determines their ranks
  size_t num_joined_ = 0;
  size_t num_acked_ = 0;
  size_t num_done_ = 0;     // members that have both left and exited
  size_t num_stopped_ = 0;  // members that left on request
  // Members that have been heard from, in order of decreasing silence. A member that can no longer be blamed
  // is removed lazily, when a search reaches it.
  std::list<Member*> heard_;
  std::string assignment_bytes_;
  uint64_t assignment_hash_ = 0;
  absl::Duration deadline_;            // deadline for joining or acknowledging
  std::vector<Candidate> candidates_;  // candidates of this attempt, in order of arrival
  // Indices into candidates_, grouped by weight, without withdrawn candidates. At most one per member.
  std::array<std::set<size_t>, kNumWeights> by_weight_;
  size_t num_reported_causes_ = 0;      // members that reported their own failure rather than an echo
  std::vector<size_t> new_candidates_;  // indices of the candidates that arrived since the last tick
  StopMode stop_ = StopMode::kNone;
  std::string stop_reason_;
  absl::Duration lost_;       // total time during which this process did not run
  absl::Duration last_tick_;  // time of the last Tick or Expect
};

}  // namespace trainctl::rendezvous
