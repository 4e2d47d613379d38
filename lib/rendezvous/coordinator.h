// Membership of a job as a pure state machine: who has joined, which generation runs, who failed
// first, what the workers are told. No sockets, no clock, no threads: the caller hands in the time
// and the event, gets a decision with its reason, and carries out the commands. The same sequence
// of (time, event) gives the same decisions. Time never goes back. Not thread safe.
//
// A message or a tick costs O(log n) for n members, besides the commands it gives (a broadcast once per
// phase of an attempt) and the failure it ends the attempt with. Members() is O(n).
//
//   Expect ──▶ gathering ──all joined──▶ preparing ──all acknowledged──▶ recording ──Recorded──▶ running
//                  ▲                          │ no acknowledgement                                  │ first
//                  failure └──────(new generation)────┘                                                     ▼
//                  └────────────────────────────────────── Expect ◀────────────────────────────── failed
//
// Invariants (tests/unit/rendezvous/simulation_test.cc): ranks are unique and dense in a generation,
// generations only grow, no member is told to go before every member has acknowledged that very
// assignment and its generation is recorded, and messages of an older incarnation or generation change
// nothing. So a launcher that is killed never leaves a generation in use that its successor gives again.
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

// Every timeout follows from detect_timeout, so that their order cannot be broken by a setting.
struct Timeouts {
  absl::Duration heartbeat_interval;  // at most detect / 6: five may be lost
  absl::Duration detect;              // silence after which a member has failed
  absl::Duration ack;                 // from PREPARE to the last ACK
  absl::Duration join;                // from Expect to the last join: loading a program can take long
  // An echo, or the end of one that waited for others, waits this long for the cause to arrive; less where
  // everybody has spoken. The end of one that waited: less where everybody else is still heard.
  absl::Duration echo;
  // A report or an exit waits this long for the crash that explains it: a survivor can notice a
  // broken connection, and end, before the agent sees that the dead is dead.
  absl::Duration settle;
  absl::Duration tick;  // how often Tick has to come
  // Members that are heard by way of a node's agent are given this on top of `detect`: so the silence of the
  // agent is noticed first, and the node is named.
  absl::Duration relay;
  // An agent whose connection broke has this to come back, by several attempts: the packets of one can be
  // lost.
  absl::Duration away;
  // An agent that hears nothing for as long opens another connection; for half as long, where the new one is
  // not answered.
  absl::Duration redial;
  // An agent that stands still for so long is ended by its keeper: the coordinator has given up the node by
  // then, and may start its workers elsewhere.
  absl::Duration keeper;
  // A node has this to show the stacks of all its workers when one hangs. It is known by then who hangs, so
  // what the others say as they give up waiting changes nothing. `detect` later the attempt is ended whatever
  // nodes say.
  absl::Duration stacks;

  static Timeouts FromDetect(absl::Duration detect);
  // What `relay` is where there are agents.
  absl::Duration RelayOfAgents() const { return 2 * heartbeat_interval; }
};

// Who speaks, and in which life of its process.
struct MemberId {
  std::string member;
  int64_t incarnation = 0;
};

enum class LeaveKind { kFinished, kStopped };
enum class StopMode { kNone, kAfterSave, kNow };

// ---- events -------------------------------------------------------------------------------------
struct Expect {  // a new attempt with these slots; whoever joined before is forgotten
  std::vector<Slot> slots;
  int64_t attempt = 0;  // named by its notices
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
// The agent saw the process end. `description` reads "killed by SIGSEGV (11)" or "exited with code 3".
struct Exited {
  std::string member;
  bool clean = false;    // exit code 0 or 75
  bool crashed = false;  // by a signal that its own code did not mean to end with (SIGKILL, SIGSEGV, ...)
  std::string description;
  Progress last{-1, ""};  // what the agent knows of its progress, if that is more than was heard
  bool echo = false;      // by its exit code it only follows from another's failure
  bool killed = false;    // crashed by SIGKILL: it comes from outside, never from another rank's failure
  bool waited = false;    // by its board it waited for others as it ended, so they may be the reason
};
// Whoever runs the job has written down the generation of Notice::Kind::kPrepared.
struct Recorded {
  int64_t generation = 0;
};
// Its work does not go on, though its process may live. `last` as in Exited. The others are not told, so that
// they show where they stand: whoever runs the job ends them.
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

// For a checkpoint after the step that is being trained.
struct SaveRequest {};
using Event = std::variant<Expect, Join, Ack, Recorded, Heartbeat, ReportFailure, Leave, Exited, Hung,
                           StopRequest, SaveRequest, Tick>;

// ---- decisions ----------------------------------------------------------------------------------
// To one member. Losing one is harmless: the member joins again and gets the current ones.
struct Command {
  enum class Kind { kPrepare, kGo, kDirective, kReject };
  Kind kind = Kind::kPrepare;
  MemberId to;
  int64_t generation = 0;
  Directive directive;  // kDirective
  std::string reason;   // kReject
  bool rejoin = false;  // kReject: join again; otherwise this process is of the past
};

// To whoever runs the job.
struct Notice {
  enum class Kind {
    kPrepared,  // everybody has acknowledged: record the generation, then submit Recorded
    kProgress,
    kLeft,     // all of a member's work is done and saved: it only has to end, however it does
    kGivenUp,  // a member has given up waiting for another
    kFailed,
    kFinished,
    kStopRequested,
  };
  Kind kind = Kind::kPrepared;
  int64_t attempt = 0;  // of Expect; 0 before the first
  int64_t generation = 0;
  Failure failure;       // kFailed: rank (-1 before an assignment), step, message
  bool is_hang = false;  // kFailed: nobody else is told, so that all show where they stand
  std::string member;    // kFailed, kProgress, kLeft, kGivenUp
  int rank = -1;         // kProgress, kLeft
  Progress progress;     // kProgress
  bool stopped = false;  // kFinished: on request, before the end
  StopMode stop = StopMode::kNone;
  std::string reason;  // kStopRequested
};

struct Decision {
  std::vector<Command> commands;
  std::vector<Notice> notices;
  std::string reason;  // why, with the counts it follows from
};

struct MemberView {
  Slot slot;
  int64_t incarnation = 0;
  int64_t pid = 0;
  int rank = -1;
  Progress progress;
  std::string state;  // expected, joined, prepared, running, finished, stopped, exited
  absl::Duration silent;
};

class Coordinator {
 public:
  // Of the launch with this term. The first assignment gets the generation after `last_generation` (of the
  // run's journal).
  Coordinator(Timeouts timeouts, int64_t term, int64_t last_generation);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  Decision Decide(absl::Duration now, const Event& event);

  int64_t generation() const { return generation_; }
  bool running() const { return phase_ == Phase::kRunning; }
  std::string phase_name() const;
  StopMode stop() const { return stop_; }
  // The blob of the current assignment; empty before the first.
  const std::string& assignment_bytes() const { return assignment_bytes_; }
  uint64_t assignment_hash() const { return assignment_hash_; }
  std::vector<MemberView> Members(absl::Duration now) const;
  const Timeouts& timeouts() const { return timeouts_; }

 private:
  enum class Phase { kIdle, kGathering, kPreparing, kRecording, kRunning, kFailed, kFinished };
  // Every time in here is `now` of Decide less `lost_`.
  struct Member {
    Slot slot;
    size_t index = 0;  // in order_
    bool joined = false;
    int64_t incarnation = 0;
    int64_t pid = 0;
    bool acked = false;
    int rank = -1;
    absl::Duration last_heard;
    Progress progress;
    std::optional<LeaveKind> left;
    bool exited = false;
    std::optional<std::list<Member*>::iterator> heard_at;  // in heard_
    std::optional<size_t> candidate;                       // in candidates_
  };
  // How well a failure explains the others, the best first.
  enum Weight {
    kCause,
    kWaited,  // of one that waited for others: a broken collective can end it in any way
    kEcho,    // it says itself that it only tells of another's
    kNumWeights
  };
  struct Candidate {  // a failure that waits for a better explanation
    Failure failure;
    std::string member;
    Weight weight = kCause;
    absl::Duration since;
    bool from_exit = false;  // only the exit code is known
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

  // The member if `id` is its current incarnation (and `generation` the current one), else null
  // with the reason; a member of an older one is fenced with kReject.
  Member* Current(const MemberId& id, Decision& out);
  Member* Current(const MemberId& id, int64_t generation, Decision& out);
  void Hear(absl::Duration now, Member& member);
  // Grants everybody the time since the last tick, in which this process stood still.
  void GrantGap(absl::Duration gap);
  // The first by slot of those silent for longer than detect; null without any.
  const Member* FindSilent(absl::Duration now);
  // Calls `visit` with each member that was last heard before `time` and can be blamed for its silence, the
  // longest silent first, until that returns false.
  template <typename Visit>
  void VisitUnheard(absl::Duration time, Visit visit);
  // Whether nothing better is waited for.
  bool IsSettled(absl::Duration now, const Candidate& candidate);
  // Whoever has not spoken, left or ended was heard after that time, so no node is lost.
  bool AllHeardSince(absl::Duration time);
  void MaybePrepare(absl::Duration now, Decision& out);
  void SendPrepare(const Member& member, Decision& out) const;
  void SendDirectives(const Member& member, Decision& out) const;
  void Broadcast(const Directive& directive, Decision& out) const;
  void MaybeFinish(Decision& out);
  void Consider(absl::Duration now, Member& member, Failure failure, bool from_exit, bool waited,
                Decision& out);
  void Withdraw(Member& member);
  // The first of the best weight; null without any.
  const Candidate* BestCandidate() const;
  // Ends the attempt with this failure and tells the members.
  void Fail(const std::string& member, Failure failure, Decision& out);
  void NameCulprit(const std::string& member, Failure failure, Decision& out);
  void FailMissing(Decision& out);
  bool Live() const;  // an attempt is under way
  MemberId IdOf(const Member& member) const { return {member.slot.member, member.incarnation}; }

  const Timeouts timeouts_;
  Phase phase_ = Phase::kIdle;
  int64_t attempt_ = 0;
  const int64_t term_;
  int64_t generation_;
  std::map<std::string, Member> members_;
  std::vector<Member*> order_;  // of the slots, decides the ranks
  size_t num_joined_ = 0;
  size_t num_acked_ = 0;
  size_t num_done_ = 0;     // left and exited
  size_t num_stopped_ = 0;  // left on request
  // Whoever was heard, the longest silent first. One that cannot be blamed any more drops out when its
  // silence is found.
  std::list<Member*> heard_;
  std::string assignment_bytes_;
  uint64_t assignment_hash_ = 0;
  absl::Duration deadline_;            // of joining or acknowledging
  std::vector<Candidate> candidates_;  // of this attempt, as they were heard of
  // Indices of candidates_, but for what was withdrawn, by weight: at most one per member.
  std::array<std::set<size_t>, kNumWeights> by_weight_;
  size_t num_reported_causes_ = 0;      // have told of a failure of their own
  std::vector<size_t> new_candidates_;  // of candidates_: heard of since the last tick
  StopMode stop_ = StopMode::kNone;
  std::string stop_reason_;
  absl::Duration lost_;       // in all the gaps in which this process stood still
  absl::Duration last_tick_;  // or Expect
};

}  // namespace trainctl::rendezvous
