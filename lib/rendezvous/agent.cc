#include "rendezvous/agent.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::rendezvous {
namespace {

// Deaths that explain the failure of others.
bool IsCrash(const ExitStatus& exit) {
  if (!exit.signaled) return false;
  switch (exit.code) {
    case SIGKILL:
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGSYS:
      return true;
    default:
      return false;
  }
}

// A worker ends with this code because a collective broke: should its words be missing, it is still not the
// cause.
bool IsEcho(const ExitStatus& exit) {
  return !exit.signaled && exit.code == static_cast<int>(ExitCode::kWorkerFailed);
}

bool IsClean(const ExitStatus& exit) {
  return !exit.signaled && (exit.code == 0 || exit.code == static_cast<int>(ExitCode::kStoppedResumable));
}

}  // namespace

std::vector<AgentAction> Agent::Decide(absl::Duration now, const AgentEvent& event) {
  Actions out;
  std::visit([&](const auto& value) { On(now, value, out); }, event);
  return out;
}

absl::Duration Agent::next_deadline() const {
  if (phase_ == Phase::kIdle) return absl::InfiniteDuration();
  absl::Duration next = std::min({kill_deadline_, keeper_deadline_, stacks_deadline_});
  for (const Worker& worker : workers_) {
    if (worker.left && !worker.exited) next = std::min(next, *worker.left);
  }
  return next;
}

void Agent::TellCoordinator(decltype(NodeEvent::what) what, Actions& out) const {
  out.push_back(Tell{NodeEvent{attempt_, std::move(what)}});
}

std::string Agent::NameOf(int worker) const {
  return absl::StrCat("rank ", workers_[static_cast<size_t>(worker)].rank);
}

bool Agent::AllExited() const {
  return absl::c_all_of(workers_, [](const Worker& worker) { return worker.exited; });
}

void Agent::On(absl::Duration now, const NodeCommand& command, Actions& out) {
  const bool starts = std::holds_alternative<StartWorkers>(command.what);
  if (starts ? command.attempt <= attempt_ : command.attempt != attempt_) return;
  if (!starts && phase_ == Phase::kIdle) return;
  if (starts && phase_ != Phase::kIdle) {  // the old one goes on; the new one has ended before it began
    const std::string why =
        absl::StrCat("attempt ", command.attempt, " begins before ", attempt_, " has ended");
    out.push_back(Tell{{command.attempt, WorkersNotStarted{InternalError(why)}}});
    out.push_back(Tell{{command.attempt, NodeEnded{}}});
    return;
  }
  if (!NamesOwnWorker(command)) return;
  if (starts) attempt_ = command.attempt;
  std::visit([&](const auto& value) { Do(now, value, out); }, command.what);
}

bool Agent::NamesOwnWorker(const NodeCommand& command) const {
  const auto is_own = [&](int worker) {
    return worker >= 0 && static_cast<size_t>(worker) < workers_.size();
  };
  if (const auto* what = std::get_if<NoteLeft>(&command.what)) return is_own(what->worker);
  if (const auto* what = std::get_if<ShowStacks>(&command.what))
    return what->hung == -1 || is_own(what->hung);
  if (const auto* what = std::get_if<FindActivity>(&command.what)) return is_own(what->worker);
  return true;
}

void Agent::Do(absl::Duration now, const StartWorkers& command, Actions& out) {
  phase_ = Phase::kRunning;
  workers_.clear();
  for (const Slot& slot : command.slots) {
    workers_.push_back({slot.member, command.first_rank + static_cast<int>(workers_.size())});
  }
  is_killing_ = keeper_lost_ = is_alone_ = false;
  tail_of_ = hung_ = -1;
  out.push_back(SpawnWorkers{command.first_rank, command.slots});
}

void Agent::Do(absl::Duration now, const EndWorkers& command, Actions& out) {
  if (command.tail_of >= 0 && static_cast<size_t>(command.tail_of) < workers_.size()) {
    tail_of_ = command.tail_of;
  }
  const bool is_first = std::exchange(phase_, Phase::kEnding) == Phase::kRunning;
  if (is_killing_) return;
  kill_deadline_ = std::min(kill_deadline_, now + command.grace);
  for (size_t i = 0; is_first && i < workers_.size(); ++i) {
    if (static_cast<int>(i) == hung_) {
      out.push_back(SignalWorker{hung_, SIGKILL});  // it cannot obey anything less
      continue;
    }
    out.push_back(SignalWorker{static_cast<int>(i), SIGTERM});
    out.push_back(SignalWorker{static_cast<int>(i), SIGCONT});  // one that is stopped could not obey
  }
  if (AllExited() || now >= kill_deadline_) KillAll(now, out);  // and what they started
}

void Agent::Do(absl::Duration now, const NoteLeft& command, Actions& out) {
  Worker& worker = workers_[static_cast<size_t>(command.worker)];
  if (worker.left) return;
  // stop_timeout may be 0; to end takes a moment all the same.
  worker.left = now + std::max(options_.stop_timeout, absl::Seconds(1));
}

void Agent::Do(absl::Duration now, const ShowStacks& command, Actions& out) {
  if (stacks_deadline_ < absl::InfiniteDuration()) return;  // they are being taken
  if (phase_ != Phase::kRunning || AllExited()) return TellCoordinator(StacksShown{}, out);
  hung_ = command.hung;
  stacks_deadline_ = now + options_.stacks_timeout;
  TakeStacks take{{}, hung_};
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].exited) take.workers.push_back(static_cast<int>(i));
  }
  absl::c_stable_partition(take.workers, [&](int worker) { return worker == hung_; });
  out.push_back(std::move(take));
}

void Agent::Do(absl::Duration now, const FindActivity& command, Actions& out) {
  if (!workers_[static_cast<size_t>(command.worker)].exited) out.push_back(LookForActivity{command.worker});
}

void Agent::On(absl::Duration now, const ProcessNotStarted& event, Actions& out) {
  if (phase_ == Phase::kIdle) return;
  TellCoordinator(WorkersNotStarted{event.why}, out);
  Do(now, EndWorkers{absl::ZeroDuration()}, out);
}

void Agent::On(absl::Duration now, const ProcessExited& event, Actions& out) {
  if (phase_ == Phase::kIdle) return;
  Worker& worker = workers_[static_cast<size_t>(event.worker)];
  if (std::exchange(worker.exited, true)) return;
  std::string description = event.exit.Describe();
  const bool is_ours = phase_ == Phase::kEnding || worker.left;
  const bool was_killed = event.exit.signaled && event.exit.code == SIGKILL;
  if (was_killed && !is_ours) absl::StrAppend(&description, event.killed_note);
  if (worker.left && !IsClean(event.exit)) {
    TellCoordinator(NodeMessage{absl::StrCat(NameOf(event.worker), ": ", description,
                                             " after its work was done and saved; nothing is lost")},
                    out);
  }
  WorkerEnded ended;
  ended.worker = event.worker;
  ended.exited = {worker.member, IsClean(event.exit), IsCrash(event.exit), std::move(description),
                  event.last,    IsEcho(event.exit),  was_killed,          event.waited};
  if (!event.exit.signaled) ended.exit_code = event.exit.code;
  TellCoordinator(std::move(ended), out);
  if (phase_ == Phase::kEnding && AllExited()) KillAll(now, out);
  if (!is_killing_ && absl::c_none_of(workers_, IsOverdue)) keeper_deadline_ = absl::InfiniteDuration();
}

bool Agent::IsOverdue(const Worker& worker) {
  return !worker.exited && worker.left == absl::InfiniteDuration();
}

bool Agent::IsWorkDone() const {
  return absl::c_all_of(workers_, [](const Worker& worker) { return worker.exited || worker.left; });
}

void Agent::On(absl::Duration now, const ProcessStuck& event, Actions& out) {
  TellCoordinator(
      NodeMessage{absl::StrCat("process ", event.pid,
                               event.worker >= 0 ? absl::StrCat(" (", NameOf(event.worker), ")") : "",
                               " was killed and does not end: it hangs in the kernel, on a disk or a device, "
                               "and is left behind")},
      out);
  // Another of an attempt that has ended ends no later one.
  if (phase_ != Phase::kIdle && is_killing_) Finish(out);
}

void Agent::On(absl::Duration now, const ProcessesGone& event, Actions& out) {
  if (phase_ != Phase::kIdle && is_killing_) Finish(out);
}

// The kernel has ended the workers with it; their children are this process's by now.
void Agent::On(absl::Duration now, const KeeperLost& event, Actions& out) {
  if (phase_ == Phase::kIdle) return;
  out.push_back(KillOrphans{});
  if (phase_ != Phase::kRunning || !IsWorkDone()) {
    keeper_lost_ = true;
    return Finish(out);
  }
  // All is saved, and nothing failed: the end comes with the coordinator's word.
  is_alone_ = true;
  keeper_deadline_ = absl::InfiniteDuration();
  for (size_t i = 0; i < workers_.size(); ++i)
    On(now, ProcessExited{.worker = static_cast<int>(i), .exit = {true, SIGKILL}}, out);
}

void Agent::On(absl::Duration now, const StacksTaken& event, Actions& out) {
  if (stacks_deadline_ < absl::InfiniteDuration()) EndStacks(out);
}

void Agent::EndStacks(Actions& out) {
  stacks_deadline_ = absl::InfiniteDuration();
  TellCoordinator(StacksShown{}, out);
}

void Agent::On(absl::Duration now, const ActivityFound& event, Actions& out) {
  if (phase_ == Phase::kRunning) TellCoordinator(ActivitySeen{event.worker, event.activity}, out);
}

void Agent::On(absl::Duration now, const AgentTick& event, Actions& out) {
  if (phase_ == Phase::kIdle) return;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.exited || !worker.left || now < *worker.left) continue;
    worker.left = absl::InfiniteDuration();  // once
    TellCoordinator(NodeMessage{absl::StrCat(
                        NameOf(static_cast<int>(i)), " has done and saved its work, but does not end within ",
                        absl::FormatDuration(options_.stop_timeout), " (launch.stop_timeout)")},
                    out);
    out.push_back(SignalWorker{static_cast<int>(i), SIGKILL});
  }
  // Killed, and its end is not told: the keeper stands still.
  const bool is_missed = !is_killing_ && IsWorkDone() && absl::c_any_of(workers_, IsOverdue);
  if (is_missed && keeper_deadline_ == absl::InfiniteDuration())
    keeper_deadline_ = now + options_.keeper_patience;
  if (now >= stacks_deadline_) {
    out.push_back(DropStacks{});
    EndStacks(out);
  }
  if (now >= kill_deadline_) KillAll(now, out);
  if (now >= keeper_deadline_) {
    keeper_deadline_ = absl::InfiniteDuration();
    out.push_back(KillKeeper{});  // it was stopped, say; the kernel ends the workers with it
  }
}

void Agent::KillAll(absl::Duration now, Actions& out) {
  kill_deadline_ = absl::InfiniteDuration();
  if (std::exchange(is_killing_, true)) return;
  if (is_alone_) return Finish(out);
  keeper_deadline_ = now + options_.keeper_patience;
  out.push_back(KillProcesses{});
}

void Agent::Finish(Actions& out) {
  phase_ = Phase::kIdle;
  kill_deadline_ = keeper_deadline_ = stacks_deadline_ = absl::InfiniteDuration();
  out.push_back(FinishAttempt{attempt_, tail_of_, keeper_lost_});
}

}  // namespace trainctl::rendezvous
