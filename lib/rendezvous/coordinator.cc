#include "rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace trainctl::rendezvous {

Timeouts Timeouts::FromDetect(absl::Duration detect) {
  Timeouts timeouts;
  timeouts.detect = detect;
  timeouts.heartbeat_interval = std::clamp(detect / 6, absl::Milliseconds(10), absl::Milliseconds(500));
  timeouts.ack = detect;
  timeouts.join = std::max(absl::Seconds(120), 20 * detect);
  timeouts.echo = detect;
  timeouts.settle = std::min(detect / 4, absl::Milliseconds(250));  // of an agent on a busy machine
  timeouts.tick = std::clamp(detect / 20, absl::Milliseconds(10), absl::Milliseconds(50));
  return timeouts;
}

Coordinator::Coordinator(Timeouts timeouts, int64_t last_generation)
    : timeouts_(timeouts), generation_(last_generation) {}

Decision Coordinator::Decide(absl::Duration now, const Event& event) {
  Decision out;
  std::visit([&](const auto& value) { On(now, value, out); }, event);
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
  candidates_.clear();
  for (const Slot& slot : event.slots) {
    Member member;
    member.slot = slot;
    member.last_heard = now;
    TRAINCTL_CHECK_MSG(members_.emplace(slot.member, std::move(member)).second, "slot ", slot.member,
                       " is offered twice");
    order_.push_back(slot.member);
  }
  phase_ = Phase::kGathering;
  deadline_ = now + timeouts_.join;
  last_tick_ = now;
  out.reason = absl::StrCat("expecting ", order_.size(), " members");
}

Coordinator::Member* Coordinator::Current(const MemberId& id, Decision& out) {
  const auto it = members_.find(id.member);
  bool rejoin = false;
  if (it == members_.end()) {
    out.reason = absl::StrCat("unknown member ", id.member);
  } else if (!it->second.joined) {
    out.reason = absl::StrCat("member ", id.member, " has not joined");
    rejoin = true;  // it was sent away and did not know yet
  } else if (it->second.incarnation != id.incarnation) {
    out.reason = absl::StrCat("incarnation ", id.incarnation, " of ", id.member, " is superseded by ",
                              it->second.incarnation);
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
  if (member.exited || (member.joined && event.id.incarnation < member.incarnation)) {
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
  member.joined = true;
  member.incarnation = event.id.incarnation;
  member.pid = event.pid;
  member.last_heard = now;
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
  member.acked = false;
  if (assigned) {  // a new process took the place of one in the assignment
    phase_ = Phase::kGathering;
    deadline_ = now + timeouts_.join;
  }
  MaybePrepare(now, out);
}

std::vector<std::string> Coordinator::MissingMembers() const {
  std::vector<std::string> missing;
  for (const std::string& name : order_) {
    if (!members_.at(name).joined) missing.push_back(name);
  }
  return missing;
}

void Coordinator::MaybePrepare(absl::Duration now, Decision& out) {
  const size_t num_missing = MissingMembers().size();
  if (num_missing > 0) {
    out.reason = absl::StrCat(order_.size() - num_missing, " of ", order_.size(), " members joined");
    return;
  }
  ++generation_;
  Assignment assignment;
  assignment.generation = generation_;
  std::map<std::string, int> local_ranks;
  for (const std::string& name : order_) {
    Member& member = members_.at(name);
    member.rank = static_cast<int>(assignment.members.size());
    member.acked = false;
    member.left.reset();
    member.progress = {-1, "startup"};
    assignment.members.push_back(
        {member.slot, member.incarnation, member.rank, local_ranks[member.slot.node]++});
  }
  assignment_bytes_ = SerializeAssignment(assignment);
  assignment_hash_ = AssignmentHash(assignment_bytes_);
  phase_ = Phase::kPreparing;
  deadline_ = now + timeouts_.ack;
  for (const std::string& name : order_) SendPrepare(members_.at(name), out);
  out.reason = absl::StrCat("all ", order_.size(), " members joined: generation ", generation_);
}

void Coordinator::SendPrepare(const Member& member, Decision& out) const {
  out.commands.push_back({Command::Kind::kPrepare, IdOf(member), generation_, {}, "", false});
}

void Coordinator::On(absl::Duration now, const Ack& event, Decision& out) {
  Member* member = Current(event.id, event.generation, out);
  if (member == nullptr) return;
  member->last_heard = now;
  if (phase_ != Phase::kPreparing) {
    out.reason = absl::StrCat("acknowledged while ", phase_name());
    return;
  }
  if (event.hash != assignment_hash_) {
    out.reason = absl::StrCat(event.id.member, " acknowledged another assignment than was sent; sent again");
    SendPrepare(*member, out);
    return;
  }
  member->acked = true;
  const size_t acked =
      std::count_if(members_.begin(), members_.end(), [](const auto& entry) { return entry.second.acked; });
  out.reason = absl::StrCat(acked, " of ", members_.size(), " members acknowledged");
  if (acked < members_.size()) return;
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
  for (const std::string& name : order_) {
    const Member& each = members_.at(name);
    out.commands.push_back({Command::Kind::kGo, IdOf(each), generation_, {}, "", false});
    SendDirectives(each, out);
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
  for (const std::string& name : order_) {
    const Member& member = members_.at(name);
    if (member.left || member.exited) continue;
    out.commands.push_back({Command::Kind::kDirective, IdOf(member), generation_, directive, "", false});
  }
}

void Coordinator::On(absl::Duration now, const Heartbeat& event, Decision& out) {
  Member* member = Current(event.id, out);
  if (member == nullptr) return;
  member->last_heard = now;
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
  member->last_heard = now;
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
  const absl::Duration wait = failure.peer_failed ? timeouts_.echo : timeouts_.settle;
  Consider({std::move(failure), event.id.member, now + wait, false}, out);
}

// Every member's is kept: exits and words of several members arrive in any order, and the one that
// looks best now can turn out to be an echo.
void Coordinator::Consider(Candidate candidate, Decision& out) {
  Candidate* const same = CandidateOf(candidate.member);
  if (same == nullptr) {
    candidates_.push_back(candidate);
  } else if (same->from_exit) {
    *same = candidate;
  }
  const std::string& best = BestCandidate()->member;
  out.reason = best == candidate.member
                   ? absl::StrCat("failure of ", best, " waits for a better explanation")
                   : absl::StrCat("failure of ", candidate.member, " is kept, that of ", best, " was first");
}

Coordinator::Candidate* Coordinator::BestCandidate() {
  const auto cause = absl::c_find_if(candidates_, [](const Candidate& c) { return !c.failure.peer_failed; });
  if (cause != candidates_.end()) return &*cause;
  return candidates_.empty() ? nullptr : &candidates_.front();
}

Coordinator::Candidate* Coordinator::CandidateOf(const std::string& member) {
  const auto it = absl::c_find_if(candidates_, [&](const Candidate& c) { return c.member == member; });
  return it == candidates_.end() ? nullptr : &*it;
}

bool Coordinator::HasReportedCause() const {
  return absl::c_any_of(candidates_,
                        [](const Candidate& c) { return !c.from_exit && !c.failure.peer_failed; });
}

void Coordinator::Fail(const std::string& member, Failure failure, Decision& out) {
  failure.peer_failed = false;
  out.reason = absl::StrCat(member, " failed: ", failure.message);
  Broadcast({DirectiveKind::kAbort, absl::StrCat("rank ", failure.rank, " failed: ", failure.message)}, out);
  phase_ = Phase::kFailed;
  candidates_.clear();
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
  member->last_heard = now;
  if (phase_ != Phase::kRunning) {
    out.reason = absl::StrCat("left while ", phase_name());
    return;
  }
  member->left = event.kind;
  Notice left;
  left.kind = Notice::Kind::kLeft;
  left.generation = generation_;
  left.member = event.id.member;
  left.rank = member->rank;
  out.notices.push_back(std::move(left));
  MaybeFinish(out);
}

void Coordinator::MaybeFinish(Decision& out) {
  const size_t done = std::count_if(members_.begin(), members_.end(), [](const auto& entry) {
    return entry.second.left.has_value() && entry.second.exited;
  });
  out.reason = absl::StrCat(done, " of ", members_.size(), " members left and exited");
  if (done < members_.size()) return;
  phase_ = Phase::kFinished;
  Notice finished;
  finished.kind = Notice::Kind::kFinished;
  finished.generation = generation_;
  finished.stopped =
      absl::c_any_of(members_, [](const auto& entry) { return entry.second.left == LeaveKind::kStopped; });
  out.notices.push_back(std::move(finished));
}

void Coordinator::On(absl::Duration now, const Exited& event, Decision& out) {
  const auto it = members_.find(event.member);
  if (it == members_.end()) {
    out.reason = absl::StrCat("unknown member ", event.member);
    return;
  }
  Member& member = it->second;
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
  if (Candidate* const announced = CandidateOf(event.member); announced != nullptr) {
    if (event.crashed) absl::StrAppend(&announced->failure.message, "; then ", event.description);
    out.reason = absl::StrCat(event.member, " ended as it had announced");
    return;
  }
  // A crash explains echoes and exit codes. It does not explain what a rank has told of itself: it may be the
  // end of one that lost its peer. SIGKILL is no such end, so the report is the one that follows from it: of
  // a broken connection, say, that was not known as an echo.
  if (event.killed || (event.crashed && !HasReportedCause())) {
    Fail(event.member, std::move(failure), out);
    return;
  }
  const absl::Duration wait = event.echo ? timeouts_.echo : timeouts_.settle;
  Consider({std::move(failure), event.member, now + wait, true}, out);
}

void Coordinator::On(absl::Duration now, const Hung& event, Decision& out) {
  const auto it = members_.find(event.member);
  if (it == members_.end() || !Live() || it->second.exited || it->second.left) {
    out.reason = absl::StrCat(event.member, " ", event.description, ", which is of no account any more");
    return;
  }
  Member& member = it->second;
  if (event.last.step >= std::max<int64_t>(member.progress.step, 0)) member.progress = event.last;
  Fail(event.member, {member.rank, member.progress.step, "", event.description, false}, out);
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

void Coordinator::On(absl::Duration now, const Tick& event, Decision& out) {
  // If the time between two ticks is long, it was this process that stood still (suspended, or
  // starved): the others are given that time.
  const absl::Duration gap = last_tick_ ? now - *last_tick_ : absl::ZeroDuration();
  last_tick_ = now;
  if (!Live()) return;
  if (gap > timeouts_.detect / 2) {
    // Never more than was lost: what was heard after the gap, before this tick, has lost nothing of it.
    for (auto& [name, member] : members_) member.last_heard = std::min(member.last_heard + gap, now);
    deadline_ =
        std::min(deadline_ + gap, now + (phase_ == Phase::kGathering ? timeouts_.join : timeouts_.ack));
    for (Candidate& candidate : candidates_) {
      candidate.deadline =
          std::min(candidate.deadline + gap,
                   now + (candidate.failure.peer_failed ? timeouts_.echo : timeouts_.settle));
    }
    out.reason = absl::StrCat("the coordinator itself stood still for ", absl::FormatDuration(gap));
    return;
  }
  if (const Candidate* best = BestCandidate(); best != nullptr && now >= best->deadline) {
    const Candidate cause = *best;
    Fail(cause.member, cause.failure, out);
    return;
  }
  for (const std::string& name : order_) {
    const Member& member = members_.at(name);
    // The agent sees to it that one that has left ends.
    if (!member.joined || member.exited || member.left || now - member.last_heard <= timeouts_.detect)
      continue;
    Fail(name,
         {member.rank, member.progress.step, "",
          absl::StrCat(
              "no heartbeat for ",
              absl::FormatDuration(absl::Trunc(now - member.last_heard, absl::Milliseconds(1))),
              " (launch.detect_timeout is ", absl::FormatDuration(timeouts_.detect), "; last seen ",
              member.progress.phase.empty() ? "starting" : absl::StrCat("in ", member.progress.phase), ")"),
          false},
         out);
    return;
  }
  if (now < deadline_) return;
  if (phase_ == Phase::kGathering) {
    const std::vector<std::string> missing = MissingMembers();
    Fail(missing.front(),
         {-1, -1, "",
          absl::StrCat("did not join within ", absl::FormatDuration(timeouts_.join),
                       " (missing: ", absl::StrJoin(missing, ", "), ")"),
          false},
         out);
  } else if (phase_ == Phase::kPreparing) {
    // Whoever did not acknowledge has to join again; the others wait for a new generation.
    size_t dropped = 0;
    for (auto& [name, member] : members_) {
      if (member.acked) continue;
      member.joined = false;
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
  for (const std::string& name : order_) {
    const Member& member = members_.at(name);
    MemberView view;
    view.slot = member.slot;
    view.incarnation = member.incarnation;
    view.pid = member.pid;
    view.rank = member.rank;
    view.progress = member.progress;
    view.silent = now - member.last_heard;
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
