#include "launcher/node_host.h"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/files.h"

namespace trainctl::launcher {
namespace {

constexpr int kTailLines = 20;
constexpr absl::Duration kBoardsInterval = absl::Milliseconds(100);
constexpr absl::Duration kOrphanTimeout = absl::Seconds(5);

}  // namespace

NodeHost::NodeHost(WorkerStart start, rendezvous::AgentOptions options, Deps deps)
    : start_(std::move(start)), deps_(std::move(deps)), agent_(options) {}

void NodeHost::Handle(rendezvous::NodeCommand command) {
  if (const auto* left = std::get_if<rendezvous::NoteLeft>(&command.what);
      left != nullptr && workers_ && command.attempt == agent_.attempt() && agent_.NamesOwnWorker(command)) {
    workers_->at(left->worker).has_left = true;
  }
  Decide(std::move(command));
}

void NodeHost::AddPollFds(std::vector<pollfd>& fds) const {
  if (workers_) workers_->AddPollFds(fds);
  for (const auto& [worker, dump] : dumps_) fds.push_back({dump.fd(), POLLIN, 0});
}

int NodeHost::PollMs(absl::Duration most) const {
  const absl::Duration wait = std::clamp(agent_.next_deadline() - Now(), absl::ZeroDuration(), most);
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1))));
}

void NodeHost::Advance() {
  if (agent_.is_idle()) return;
  workers_->Beat();
  workers_->ReadOutput();
  HandleEvents();
  ContinueStacks();
  FindActivities();
  Decide(rendezvous::AgentTick{});
  ShowBoards();
  if (agent_.is_idle()) workers_.reset();
}

// What an action leads to waits until all actions of its event are carried out.
void NodeHost::Decide(rendezvous::AgentEvent event) {
  events_.push_back(std::move(event));
  if (std::exchange(is_deciding_, true)) return;
  while (!events_.empty()) {
    const rendezvous::AgentEvent next = std::move(events_.front());
    events_.pop_front();
    for (const rendezvous::AgentAction& action : agent_.Decide(Now(), next)) {
      std::visit([&](const auto& what) { Do(what); }, action);
    }
  }
  is_deciding_ = false;
}

// ---- what the agent decides ---------------------------------------------------------------------

void NodeHost::Do(const rendezvous::SpawnWorkers& action) {
  oom_kills_before_ = CountOomKills();
  activity_.Forget();
  const absl::Status unchanged = start_.files.CheckUnchanged();
  absl::StatusOr<WorkerSet> workers =
      unchanged.ok()
          ? WorkerSet::Start(start_, action, agent_.attempt(), deps_.clock.Now(), deps_.disk, deps_.show_line)
          : unchanged;
  if (!workers.ok()) {
    workers_.reset();
    Decide(rendezvous::ProcessNotStarted{workers.status()});
    return;
  }
  workers_.emplace(*std::move(workers));
  deps_.orphans.AddKeeper(workers_->keeper_pid());
}

void NodeHost::Do(const rendezvous::SignalWorker& action) {
  if (workers_) workers_->Signal(action.worker, action.signal_number);
}

void NodeHost::Do(const rendezvous::TakeStacks& action) {
  StackLimits limits;
  if (!StackDump::IsPossible()) limits.num_debuggers = 0;
  stacks_.emplace(Now(), action.workers, limits);
  for (const int worker : action.workers) workers_->AskForStack(worker, worker == action.hung);
}

void NodeHost::Do(const rendezvous::DropStacks& action) { DropStacks(); }

void NodeHost::DropStacks() {
  stacks_.reset();
  threads_.Forget();
  dumps_.clear();
}

void NodeHost::Do(const rendezvous::LookForActivity& action) {
  activity_.Ask(action.worker, workers_->at(action.worker).pid);
}

void NodeHost::Do(const rendezvous::KillProcesses& action) {
  if (workers_) {
    workers_->KillAll();
  } else {
    Decide(rendezvous::ProcessesGone{});
  }
}

void NodeHost::Do(const rendezvous::KillKeeper& action) { ::kill(workers_->keeper_pid(), SIGKILL); }

void NodeHost::Do(const rendezvous::KillOrphans& action) {
  const absl::Status status = deps_.orphans.KillAll(kOrphanTimeout);
  if (!status.ok()) {
    deps_.tell({agent_.attempt(), rendezvous::NodeMessage{std::string(status.message())}});
  }
}

void NodeHost::Do(const rendezvous::FinishAttempt& action) {
  rendezvous::NodeEnded ended;
  ended.keeper_lost = action.keeper_lost;
  DropStacks();
  if (workers_) {
    workers_->DrainOutput();
    deps_.orphans.RemoveKeeper(workers_->keeper_pid());
    if (action.tail_of >= 0) ended.log_tail = workers_->at(action.tail_of).log.Tail(kTailLines);
  }
  deps_.tell({action.attempt, std::move(ended)});
}

void NodeHost::Do(const rendezvous::Tell& action) { deps_.tell(action.event); }

// ---- what happens to the processes --------------------------------------------------------------

void NodeHost::HandleEvents() {
  const int64_t attempt = agent_.attempt();
  for (const KeeperEvent& event : workers_->TakeEvents()) {
    // An event may have ended the attempt and begun the next: the rest belongs to the former.
    if (agent_.attempt() != attempt) return;
    switch (event.kind) {
      case KeeperEvent::Kind::kStarted:
        break;
      case KeeperEvent::Kind::kNotStarted:
        Decide(rendezvous::ProcessNotStarted{ErrnoError("execute", start_.program, event.error)});
        break;
      case KeeperEvent::Kind::kExited:
        HandleExit(event);
        break;
      case KeeperEvent::Kind::kStuck:
        Decide(rendezvous::ProcessStuck{event.pid, event.worker});
        break;
      case KeeperEvent::Kind::kAllGone:
        Decide(rendezvous::ProcessesGone{});
        break;
      case KeeperEvent::Kind::kLost:
        Decide(rendezvous::KeeperLost{});
        break;
    }
  }
}

void NodeHost::HandleExit(const KeeperEvent& event) {
  rendezvous::ProcessExited exited;
  exited.worker = event.worker;
  exited.exit = event.exit;
  const rendezvous::Standing standing = workers_->at(event.worker).board.ReadStanding();
  exited.last = {standing.step > 0 ? standing.step : -1, standing.phase};  // of none: it was starting
  exited.waited = standing.is_waiting;
  if (event.exit.signaled && event.exit.code == SIGKILL) {
    exited.killed_note = DescribeSigkill(oom_kills_before_, CountOomKills());
  }
  Decide(exited);
}

void NodeHost::ContinueStacks() {
  if (!stacks_) return;
  for (int worker = 0; worker < workers_->size(); ++worker) {
    if (workers_->at(worker).exit) stacks_->NoteExit(worker);
    if (workers_->at(worker).shows_stack) stacks_->NoteAnswer(Now(), worker);
  }
  const StackRound::Orders orders = stacks_->Next(Now());
  for (const int worker : orders.read) threads_.Ask(worker, workers_->at(worker).pid);
  for (const int worker : orders.debug) dumps_.try_emplace(worker, workers_->at(worker).pid);
  ReadThreads();
  ContinueDumps();
  if (!stacks_->is_over()) return;
  DropStacks();
  Decide(rendezvous::StacksTaken{});
}

void NodeHost::ReadThreads() {
  while (const auto seen = threads_.Take()) {
    workers_->AddToLog(seen->worker, seen->value);
    stacks_->NoteRead(seen->worker);
  }
}

void NodeHost::ContinueDumps() {
  for (auto it = dumps_.begin(); it != dumps_.end();) {
    const int worker = it->first;
    const bool is_over =
        it->second.Continue([&](absl::string_view text) { workers_->AddToLog(worker, text); });
    it = is_over ? dumps_.erase(it) : std::next(it);
    if (is_over) stacks_->NoteDebugged(worker);
  }
}

void NodeHost::FindActivities() {
  while (const auto seen = activity_.Take()) {
    Decide(rendezvous::ActivityFound{seen->worker, seen->value});
  }
}

void NodeHost::ShowBoards() {
  if (agent_.is_idle() || Now() < next_boards_) return;
  next_boards_ = Now() + kBoardsInterval;
  deps_.tell({agent_.attempt(), rendezvous::BoardsSeen{workers_->Boards()}});
}

}  // namespace trainctl::launcher
