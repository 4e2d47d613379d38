#include "rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace trainctl::rendezvous {
namespace {

constexpr size_t kMaxNamedMembers = 10;  // in a message

}  // namespace

Timeouts Timeouts::FromDetect(absl::Duration detect) {
  Timeouts timeouts;
  timeouts.detect = detect;
  timeouts.heartbeat_interval = std::clamp(detect / 6, absl::Milliseconds(10), absl::Milliseconds(500));
  timeouts.ack = detect;
  timeouts.join = std::max(absl::Seconds(120), 20 * detect);
  timeouts.echo = detect;
  timeouts.settle = std::min(detect / 4, absl::Milliseconds(250));  // of an agent on a busy machine
  timeouts.tick = std::clamp(detect / 20, absl::Milliseconds(10), absl::Milliseconds(50));
  timeouts.away = detect / 2;
  timeouts.redial = detect / 3;
  timeouts.keeper = 2 * detect;
  timeouts.stacks = absl::Seconds(15);  // gdb reads the symbols of LibTorch
  return timeouts;
}

Coordinator::Coordinator(Timeouts timeouts, int64_t term, int64_t last_generation)
    : timeouts_(timeouts), term_(term), generation_(last_generation) {}

Decision Coordinator::Decide(absl::Duration now, const Event& event) {
  Decision out;
  std::visit([&](const auto& value) { On(now - lost_, value, out); }, event);
  for (Notice& notice : out.notices) notice.attempt = attempt_;
  return out;
}

std::string Coordinator::phase_name() const {
  switch (phase_) {
    case Phase::kIdle:
      return "idle";
    case Phase::kGathering:
      return "gathering";
    case Phase::kPreparing:
      return "preparing";
    case Phase::kRecording:
      return "recording";
    case Phase::kRunning:
      return "running";
    case Phase::kFailed:
      return "failed";
    case Phase::kFinished:
      return "finished";
  }
  return "unknown";
}

bool Coordinator::Live() const {
  return phase_ == Phase::kGathering || phase_ == Phase::kPreparing || phase_ == Phase::kRecording ||
         phase_ == Phase::kRunning;
}

void Coordinator::On(absl::Duration now, const Expect& event, Decision& out) {
  members_.clear();
  order_.clear();
  heard_.clear();
  candidates_.clear();
  for (std::set<size_t>& indices : by_weight_) indices.clear();
  new_candidates_.clear();
  num_joined_ = num_acked_ = num_done_ = num_stopped_ = num_reported_causes_ = 0;
  for (const Slot& slot : event.slots) {
    const auto [it, is_new] = members_.try_emplace(slot.member);
    TRAINCTL_CHECK_MSG(is_new, "slot ", slot.member, " is offered twice");
    Member& member = it->second;
    member.slot = slot;
    member.index = order_.size();
    member.last_heard = now;
    order_.push_back(&member);
  }
  phase_ = Phase::kGathering;
  attempt_ = event.attempt;
  deadline_ = now + timeouts_.join;
  last_tick_ = now;
  out.reason = absl::StrCat("expecting ", order_.size(), " members");
}

Coordinator::Member* Coordinator::Current(const MemberId& id, Decision& out) {
  const auto it = members_.find(id.member);
  bool rejoin = false;
  if (it == members_.end()) {
    out.reason = absl::StrCat("unknown member ", id.member);
  } else if (id.incarnation < it->second.incarnation) {
    out.reason = absl::StrCat("incarnation ", id.incarnation, " of ", id.member, " is superseded by ",
                              it->second.incarnation);
  } else if (!it->second.joined || id.incarnation > it->second.incarnation) {
    out.reason = absl::StrCat("member ", id.member, " has not joined");
    rejoin = true;  // it was sent away and did not know yet, or its join is on the way
  } else {
    return &it->second;
  }
  out.commands.push_back({Command::Kind::kReject, id, generation_, {}, out.reason, rejoin});
  return nullptr;
}

Coordinator::Member* Coordinator::Current(const MemberId& id, int64_t generation, Decision& out) {
  Member* member = Current(id, out);
  if (member == nullptr || generation == generation_) return member;
  out.reason = absl::StrCat("generation ", generation, " of ", id.member, " is superseded by ", generation_);
  return nullptr;
}

void Coordinator::On(absl::Duration now, const Join& event, Decision& out) {
  const auto it = members_.find(event.id.member);
  if (it == members_.end() || !Live()) {
    out.reason = it == members_.end() ? absl::StrCat("unknown member ", event.id.member)
                                      : absl::StrCat("nobody can join: the job is ", phase_name());
    out.commands.push_back({Command::Kind::kReject, event.id, generation_, {}, out.reason, false});
    return;
  }
  Member& member = it->second;
  if (member.exited || event.id.incarnation < std::max(member.incarnation, attempt_)) {
    out.reason = absl::StrCat("incarnation ", event.id.incarnation, " of ", event.id.member, " is over");
    out.commands.push_back({Command::Kind::kReject, event.id, generation_, {}, out.reason, false});
    return;
  }
  const bool again = member.joined && event.id.incarnation == member.incarnation;
  if (member.joined && !again && phase_ == Phase::kRunning) {
    Fail(event.id.member,
         {member.rank, member.progress.step, "", "its process was replaced by another", false}, out);
    return;
  }
  if (!member.joined) ++num_joined_;
  member.joined = true;
  member.incarnation = event.id.incarnation;
  member.pid = event.pid;
  Hear(now, member);
  const bool assigned = phase_ == Phase::kPreparing || phase_ == Phase::kRecording;
  if (again && assigned) {
    SendPrepare(member, out);
    out.reason = "joined again: the assignment is sent again";
    return;
  }
  if (again && phase_ == Phase::kRunning) {
    SendPrepare(member, out);
    out.commands.push_back({Command::Kind::kGo, IdOf(member), generation_, {}, "", false});
    SendDirectives(member, out);
    out.reason = "joined again: the running generation is sent again";
    return;
  }
  if (member.acked) --num_acked_;
  member.acked = false;
  if (assigned) {  // a new process took the place of one in the assignment
    phase_ = Phase::kGathering;
    deadline_ = now + timeouts_.join;
  }
  MaybePrepare(now, out);
}

void Coordinator::Hear(absl::Duration now, Member& member) {
  member.last_heard = now;
  if (member.heard_at) {
    heard_.splice(heard_.end(), heard_, *member.heard_at);
  } else {
    member.heard_at = heard_.insert(heard_.end(), &member);
  }
}

void Coordinator::MaybePrepare(absl::Duration now, Decision& out) {
  if (num_joined_ < order_.size()) {
    out.reason = absl::StrCat(num_joined_, " of ", order_.size(), " members joined");
    return;
  }
  ++generation_;
  Assignment assignment;
  assignment.term = term_;
  assignment.generation = generation_;
  std::map<std::string, int> local_ranks;
  for (Member* const member : order_) {  // none has left: there is no way back from running
    member->rank = static_cast<int>(member->index);
    member->acked = false;
    member->progress = {-1, "startup"};
    assignment.members.push_back(
        {member->slot, member->incarnation, member->rank, local_ranks[member->slot.node]++});
  }
  num_acked_ = 0;
  assignment_bytes_ = SerializeAssignment(assignment);
  assignment_hash_ = AssignmentHash(assignment_bytes_);
  phase_ = Phase::kPreparing;
  deadline_ = now + timeouts_.ack;
  for (const Member* const member : order_) SendPrepare(*member, out);
  out.reason = absl::StrCat("all ", order_.size(), " members joined: generation ", generation_);
}

void Coordinator::SendPrepare(const Member& member, Decision& out) const {
  out.commands.push_back({Command::Kind::kPrepare, IdOf(member), generation_, {}, "", false});
}

void Coordinator::On(absl::Duration now, const Ack& event, Decision& out) {
  Member* member = Current(event.id, event.generation, out);
  if (member == nullptr) return;
  Hear(now, *member);
  if (phase_ != Phase::kPreparing) {
    out.reason = absl::StrCat("acknowledged while ", phase_name());
    return;
  }
  if (event.hash != assignment_hash_) {
    out.reason = absl::StrCat(event.id.member, " acknowledged another assignment than was sent; sent again");
    SendPrepare(*member, out);
    return;
  }
  if (!member->acked) ++num_acked_;
  member->acked = true;
  out.reason = absl::StrCat(num_acked_, " of ", order_.size(), " members acknowledged");
  if (num_acked_ < order_.size()) return;
  // Without a deadline: who records is no member but whoever runs this coordinator.
  phase_ = Phase::kRecording;
  Notice prepared;
  prepared.kind = Notice::Kind::kPrepared;
  prepared.generation = generation_;
  out.notices.push_back(std::move(prepared));
}

void Coordinator::On(absl::Duration now, const Recorded& event, Decision& out) {
  if (phase_ != Phase::kRecording || event.generation != generation_) {
    out.reason = absl::StrCat("generation ", event.generation, " is recorded while ", phase_name(),
                              " generation ", generation_);
    return;
  }
  phase_ = Phase::kRunning;
  out.reason = absl::StrCat("generation ", generation_, " is recorded: all ", order_.size(), " members go");
  for (const Member* const member : order_) {
    out.commands.push_back({Command::Kind::kGo, IdOf(*member), generation_, {}, "", false});
    SendDirectives(*member, out);
  }
}

void Coordinator::SendDirectives(const Member& member, Decision& out) const {
  if (stop_ == StopMode::kNone) return;
  const DirectiveKind kind = stop_ == StopMode::kNow ? DirectiveKind::kAbort : DirectiveKind::kStopAfterSave;
  out.commands.push_back(
      {Command::Kind::kDirective, IdOf(member), generation_, {kind, stop_reason_}, "", false});
}

void Coordinator::Broadcast(const Directive& directive, Decision& out) const {
  if (phase_ != Phase::kRunning) return;
  for (const Member* const member : order_) {
    if (member->left || member->exited) continue;
    out.commands.push_back({Command::Kind::kDirective, IdOf(*member), generation_, directive, "", false});
  }
}

void Coordinator::On(absl::Duration now, const Heartbeat& event, Decision& out) {
  Member* member = Current(event.id, out);
  if (member == nullptr) return;
  Hear(now, *member);
  if (event.generation != generation_ || phase_ != Phase::kRunning) {
    out.reason = absl::StrCat("heartbeat of generation ", event.generation, " while ", phase_name());
    return;
  }
  if (event.progress.step == member->progress.step && event.progress.phase == member->progress.phase) return;
  member->progress = event.progress;
  Notice progress;
  progress.kind = Notice::Kind::kProgress;
  progress.generation = generation_;
  progress.member = event.id.member;
  progress.rank = member->rank;
  progress.progress = event.progress;
  out.notices.push_back(std::move(progress));
}

void Coordinator::On(absl::Duration now, const ReportFailure& event, Decision& out) {
  Member* member = Current(event.id, out);
  if (member == nullptr) return;
  Hear(now, *member);
  if (event.generation != 0 && event.generation != generation_) {
    out.reason = absl::StrCat("failure of generation ", event.generation, " is of the past");
    return;
  }
  if (!Live()) {
    out.reason = "an earlier failure was first";
    return;
  }
  Failure failure = event.failure;
  failure.rank = member->rank;
  if (failure.step < 0) failure.step = member->progress.step;
  if (failure.peer_failed) {
    Notice given_up;
    given_up.kind = Notice::Kind::kGivenUp;
    given_up.generation = generation_;
    given_up.member = event.id.member;
    out.notices.push_back(std::move(given_up));
  }
  Consider(now, *member, std::move(failure), /*from_exit=*/false, /*waited=*/false, out);
}

bool Coordinator::IsSettled(absl::Duration now, const Candidate& candidate) {
  size_t num_spoken = num_done_;
  for (const std::set<size_t>& indices : by_weight_) num_spoken += indices.size();
  if (candidate.weight == kCause || num_spoken >= order_.size()) {
    return now >= candidate.since + timeouts_.settle;
  }
  if (now >= candidate.since + timeouts_.echo) return true;
  return candidate.weight == kWaited && AllHeardSince(candidate.since + timeouts_.settle);
}

// Every member's is kept: exits and words of several members arrive in any order, and the one that
// looks best now can turn out to be an echo.
void Coordinator::Consider(absl::Duration now, Member& member, Failure failure, bool from_exit, bool waited,
                           Decision& out) {
  const std::string& name = member.slot.member;
  Candidate candidate{std::move(failure), name, kCause, now, from_exit};
  if (waited) candidate.weight = kWaited;
  if (candidate.failure.peer_failed) candidate.weight = kEcho;
  const bool is_new = !member.candidate.has_value();
  if (is_new) {
    member.candidate = candidates_.size();
    candidates_.emplace_back();
  }
  const size_t index = *member.candidate;
  if (is_new || candidates_[index].from_exit) {
    for (std::set<size_t>& indices : by_weight_) indices.erase(index);
    by_weight_[candidate.weight].insert(index);
    if (candidate.weight == kCause && !from_exit) ++num_reported_causes_;
    candidates_[index] = std::move(candidate);
    new_candidates_.push_back(index);
  }
  const std::string& best = BestCandidate()->member;
  out.reason = best == name ? absl::StrCat("failure of ", best, " waits for a better explanation")
                            : absl::StrCat("failure of ", name, " is kept, that of ", best, " was first");
}

const Coordinator::Candidate* Coordinator::BestCandidate() const {
  for (const std::set<size_t>& indices : by_weight_) {
    if (!indices.empty()) return &candidates_[*indices.begin()];
  }
  return nullptr;
}

// Its end was heard before its last word, which says that nothing is lost with it.
void Coordinator::Withdraw(Member& member) {
  if (!member.candidate || !candidates_[*member.candidate].from_exit) return;
  for (std::set<size_t>& indices : by_weight_) indices.erase(*member.candidate);
  member.candidate.reset();
}

void Coordinator::Fail(const std::string& member, Failure failure, Decision& out) {
  Broadcast({DirectiveKind::kAbort, absl::StrCat("rank ", failure.rank, " failed: ", failure.message)}, out);
  NameCulprit(member, std::move(failure), out);
}

void Coordinator::NameCulprit(const std::string& member, Failure failure, Decision& out) {
  failure.peer_failed = false;
  out.reason = absl::StrCat(member, " failed: ", failure.message);
  phase_ = Phase::kFailed;  // until Expect forgets the members and their candidates
  Notice failed;
  failed.kind = Notice::Kind::kFailed;
  failed.generation = generation_;
  failed.member = member;
  failed.rank = failure.rank;
  failed.failure = std::move(failure);
  out.notices.push_back(std::move(failed));
}

void Coordinator::On(absl::Duration now, const Leave& event, Decision& out) {
  Member* member = Current(event.id, event.generation, out);
  if (member == nullptr) return;
  Hear(now, *member);
  if (phase_ != Phase::kRunning) {
    out.reason = absl::StrCat("left while ", phase_name());
    return;
  }
  if (member->exited && !member->left) ++num_done_;
  if (member->left == LeaveKind::kStopped) --num_stopped_;
  if (event.kind == LeaveKind::kStopped) ++num_stopped_;
  member->left = event.kind;
  Withdraw(*member);
  Notice left;
  left.kind = Notice::Kind::kLeft;
  left.generation = generation_;
  left.member = event.id.member;
  left.rank = member->rank;
  out.notices.push_back(std::move(left));
  MaybeFinish(out);
}

void Coordinator::MaybeFinish(Decision& out) {
  out.reason = absl::StrCat(num_done_, " of ", order_.size(), " members left and exited");
  if (num_done_ < order_.size()) return;
  phase_ = Phase::kFinished;
  Notice finished;
  finished.kind = Notice::Kind::kFinished;
  finished.generation = generation_;
  finished.stopped = num_stopped_ > 0;
  out.notices.push_back(std::move(finished));
}

void Coordinator::On(absl::Duration now, const Exited& event, Decision& out) {
  const auto it = members_.find(event.member);
  if (it == members_.end()) {
    out.reason = absl::StrCat("unknown member ", event.member);
    return;
  }
  Member& member = it->second;
  if (member.left && !member.exited) ++num_done_;
  member.exited = true;
  if (event.last.step >= std::max<int64_t>(member.progress.step, 0)) member.progress = event.last;
  if (!Live()) {
    out.reason = absl::StrCat(event.member, " ", event.description, " while ", phase_name());
    return;
  }
  // What comes after all work is done and saved, in the teardown of a library say, undoes nothing.
  if (member.left) {
    MaybeFinish(out);
    return;
  }
  Failure failure{member.rank, member.progress.step, "", event.description, event.echo};
  if (event.clean) {
    absl::StrAppend(&failure.message,
                    phase_ == Phase::kRunning ? " before the end of the run" : " before it was given a rank");
  }
  // What it said of itself says more than how it ended; what it said of others is still an echo.
  if (member.candidate) {
    Candidate& announced = candidates_[*member.candidate];
    if (event.crashed) absl::StrAppend(&announced.failure.message, "; then ", event.description);
    if (event.waited && announced.weight == kCause && !announced.from_exit) {
      announced.weight = kWaited;
      by_weight_[kCause].erase(*member.candidate);
      by_weight_[kWaited].insert(*member.candidate);
      --num_reported_causes_;
    }
    out.reason = absl::StrCat(event.member, " ended as it had announced");
    return;
  }
  // A crash explains echoes and exit codes. It does not explain what a rank has told of itself: it may be the
  // end of one that lost its peer, as is that of one that waited for others. SIGKILL is no such end, so the
  // report is the one that follows from it: of a broken connection, say, that was not known as an echo.
  if (event.killed || (event.crashed && !event.waited && num_reported_causes_ == 0)) {
    Fail(event.member, std::move(failure), out);
    return;
  }
  Consider(now, member, std::move(failure), /*from_exit=*/true, event.waited, out);
}

void Coordinator::On(absl::Duration now, const Hung& event, Decision& out) {
  const auto it = members_.find(event.member);
  if (it == members_.end() || !Live() || it->second.exited || it->second.left) {
    out.reason = absl::StrCat(event.member, " ", event.description, ", which is of no account any more");
    return;
  }
  Member& member = it->second;
  if (event.last.step >= std::max<int64_t>(member.progress.step, 0)) member.progress = event.last;
  NameCulprit(event.member, {member.rank, member.progress.step, "", event.description, false}, out);
  out.notices.back().is_hang = true;
}

void Coordinator::On(absl::Duration now, const StopRequest& event, Decision& out) {
  out.reason = absl::StrCat("stop requested: ", event.reason);
  if (event.mode <= stop_) return;
  stop_ = event.mode;
  stop_reason_ = event.reason;
  Broadcast({stop_ == StopMode::kNow ? DirectiveKind::kAbort : DirectiveKind::kStopAfterSave, stop_reason_},
            out);
  Notice notice;
  notice.kind = Notice::Kind::kStopRequested;
  notice.generation = generation_;
  notice.stop = event.mode;
  notice.reason = event.reason;
  out.notices.push_back(std::move(notice));
}

// Rank 0 has all ranks save after the same step.
void Coordinator::On(absl::Duration now, const SaveRequest& event, Decision& out) {
  out.reason = absl::StrCat("a save is asked for while ", phase_name());
  if (phase_ != Phase::kRunning) return;
  for (const Member* const member : order_) {
    if (member->rank != 0 || member->left || member->exited) continue;
    out.commands.push_back(
        {Command::Kind::kDirective, IdOf(*member), generation_, {DirectiveKind::kSave}, "", false});
  }
}

void Coordinator::GrantGap(absl::Duration gap) {
  lost_ += gap;  // it is the time of the last tick again
  // What was heard after the gap has lost nothing of it.
  for (auto it = heard_.rbegin(); it != heard_.rend() && (*it)->last_heard > last_tick_; ++it) {
    (*it)->last_heard = last_tick_;
  }
  for (const size_t index : new_candidates_) {
    candidates_[index].since = last_tick_;
  }
  deadline_ =
      std::min(deadline_, last_tick_ + (phase_ == Phase::kGathering ? timeouts_.join : timeouts_.ack));
}

template <typename Visit>
void Coordinator::VisitUnheard(absl::Duration time, Visit visit) {
  for (auto it = heard_.begin(); it != heard_.end() && (*it)->last_heard < time;) {
    Member& member = **it;
    // The agent sees to it that one that has left ends.
    if (!member.joined || member.exited || member.left) {
      member.heard_at.reset();
      it = heard_.erase(it);
      continue;
    }
    if (!visit(member)) return;
    ++it;
  }
}

const Coordinator::Member* Coordinator::FindSilent(absl::Duration now) {
  const Member* first = nullptr;
  VisitUnheard(now - (timeouts_.detect + timeouts_.relay), [&](const Member& member) {
    if (first == nullptr || member.index < first->index) first = &member;
    return true;
  });
  return first;
}

bool Coordinator::AllHeardSince(absl::Duration time) {
  bool all = true;
  VisitUnheard(time, [&](const Member& member) { return all = member.candidate.has_value(); });
  return all;
}

void Coordinator::FailMissing(Decision& out) {
  std::vector<absl::string_view> named;
  size_t num_missing = 0;
  for (const Member* const member : order_) {
    if (member->joined) continue;
    if (++num_missing <= kMaxNamedMembers) named.push_back(member->slot.member);
  }
  std::string missing = absl::StrJoin(named, ", ");
  if (num_missing > named.size())
    absl::StrAppend(&missing, ", ... and ", num_missing - named.size(), " more");
  Fail(std::string(named.front()),
       {-1, -1, "",
        absl::StrCat("did not join within ", absl::FormatDuration(timeouts_.join), " (missing: ", missing,
                     ")"),
        false},
       out);
}

void Coordinator::On(absl::Duration now, const Tick& event, Decision& out) {
  // If the time between two ticks is long, it was this process that stood still (suspended, or
  // starved): the others are given that time.
  const absl::Duration gap = now - last_tick_;
  if (Live() && gap > timeouts_.detect / 2) {
    GrantGap(gap);
    new_candidates_.clear();
    out.reason = absl::StrCat("the coordinator itself stood still for ", absl::FormatDuration(gap));
    return;
  }
  last_tick_ = now;
  new_candidates_.clear();
  if (!Live()) return;
  if (const Candidate* best = BestCandidate(); best != nullptr && IsSettled(now, *best)) {
    Fail(best->member, best->failure, out);
    return;
  }
  if (const Member* const silent = FindSilent(now); silent != nullptr) {
    Fail(silent->slot.member,
         {silent->rank, silent->progress.step, "",
          absl::StrCat(
              "no heartbeat for ",
              absl::FormatDuration(absl::Trunc(now - silent->last_heard, absl::Milliseconds(1))),
              " (launch.detect_timeout is ", absl::FormatDuration(timeouts_.detect), "; last seen ",
              silent->progress.phase.empty() ? "starting" : absl::StrCat("in ", silent->progress.phase), ")"),
          false},
         out);
    return;
  }
  if (now < deadline_) return;
  if (phase_ == Phase::kGathering) {
    FailMissing(out);
  } else if (phase_ == Phase::kPreparing) {
    // Whoever did not acknowledge has to join again; the others wait for a new generation.
    size_t dropped = 0;
    for (auto& [name, member] : members_) {
      if (member.acked) continue;
      member.joined = false;
      --num_joined_;
      ++dropped;
      out.commands.push_back(
          {Command::Kind::kReject, IdOf(member), generation_, {}, "not acknowledged in time", true});
    }
    phase_ = Phase::kGathering;
    deadline_ = now + timeouts_.join;
    out.reason = absl::StrCat(dropped, " members did not acknowledge generation ", generation_, " within ",
                              absl::FormatDuration(timeouts_.ack));
  }
}

std::vector<MemberView> Coordinator::Members(absl::Duration now) const {
  std::vector<MemberView> views;
  for (const Member* const each : order_) {
    const Member& member = *each;
    MemberView view;
    view.slot = member.slot;
    view.incarnation = member.incarnation;
    view.pid = member.pid;
    view.rank = member.rank;
    view.progress = member.progress;
    view.silent = now - lost_ - member.last_heard;
    if (member.left) {
      view.state = *member.left == LeaveKind::kFinished ? "finished" : "stopped";
    } else if (member.exited) {
      view.state = "exited";
    } else if (!member.joined) {
      view.state = "expected";
    } else if (phase_ == Phase::kRunning) {
      view.state = "running";
    } else {
      view.state = member.acked ? "prepared" : "joined";
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace trainctl::rendezvous
