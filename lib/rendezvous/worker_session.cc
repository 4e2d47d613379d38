#include "rendezvous/worker_session.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainctl::rendezvous {

WorkerSession::WorkerSession(MemberId id, int64_t pid) : id_(std::move(id)), pid_(pid) {
  words_.push_back(Join{id_, pid_});
}

void WorkerSession::Receive(const WorkerOrder& order) {
  if (!lost_.empty()) return;
  std::visit([&](const auto& what) { On(what); }, order);
}

void WorkerSession::Lose(const std::string& reason) {
  if (!lost_.empty()) return;
  lost_ = reason;
  words_.clear();  // nobody listens
  progress_waits_ = false;
}

void WorkerSession::On(const Prepared& order) {
  if (order.generation < generation_) return;
  if (running_ && order.generation != generation_) {
    return Lose(absl::StrCat("generation ", generation_, " is superseded by ", order.generation));
  }
  if (AssignmentHash(order.assignment) != order.assignment_hash) {
    return Lose("the world assignment arrived damaged");
  }
  const absl::StatusOr<Assignment> assignment = ParseAssignment(order.assignment);
  if (!assignment.ok()) return Lose(std::string(assignment.status().message()));
  const absl::StatusOr<WorldAssignment> world = FindMember(*assignment, id_.member, id_.incarnation);
  if (!world.ok()) return Lose(std::string(world.status().message()));
  world_ = *world;
  generation_ = order.generation;
  if (order.heartbeat_interval > absl::ZeroDuration()) heartbeat_interval_ = order.heartbeat_interval;
  words_.push_back(Ack{id_, generation_, order.assignment_hash});
}

void WorkerSession::On(const Went& order) {
  if (order.generation == generation_ && generation_ > 0) running_ = true;
}

void WorkerSession::On(const Directed& order) {
  if (order.generation < generation_) return;
  if (order.kind == DirectiveKind::kSave) {
    ++directive_.saves_asked;
  } else if (order.kind != DirectiveKind::kNone && order.kind >= directive_.kind) {
    directive_.kind = order.kind;
    directive_.reason = order.reason;
  }
}

void WorkerSession::On(const Rejected& order) {
  if (order.rejoin && !running_) {
    words_.push_back(Join{id_, pid_});
    return;
  }
  Lose(absl::StrCat("the launcher does not want this process: ", order.reason));
}

void WorkerSession::Report(const Progress& progress) {
  progress_ = progress;
  progress_waits_ = lost_.empty() && !closing_;
}

bool WorkerSession::Say(const Failure& failure) { return SayLast(ReportFailure{id_, generation_, failure}); }

bool WorkerSession::Say(LeaveKind kind) { return SayLast(Leave{id_, generation_, kind}); }

bool WorkerSession::SayLast(WorkerWords words) {
  if (std::exchange(closing_, true)) return false;
  if (!lost_.empty()) return true;
  if (progress_waits_) words_.push_back(MakeHeartbeat());
  words_.push_back(std::move(words));
  return true;
}

WorkerWords WorkerSession::TakeWords() {
  if (words_.empty()) return MakeHeartbeat();
  WorkerWords words = std::move(words_.front());
  words_.pop_front();
  return words;
}

Heartbeat WorkerSession::MakeHeartbeat() {
  progress_waits_ = false;
  return Heartbeat{id_, generation_, progress_};
}

}  // namespace trainctl::rendezvous
