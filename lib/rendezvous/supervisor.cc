#include "rendezvous/supervisor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace trainctl::rendezvous {
namespace {

constexpr absl::Duration kStopNowTimeout = absl::Seconds(3);  // there is nothing to save
constexpr absl::Duration kAgentRetry = absl::Seconds(2);

}  // namespace

ExitCode JobOutcome::exit_code() const {
  switch (kind) {
    case Kind::kFinished:
      return ExitCode::kOk;
    case Kind::kStoppedResumable:
      return ExitCode::kStoppedResumable;
    case Kind::kStoppedUnsaved:
      return ExitCode::kStoppedUnsaved;
    case Kind::kFailed:
      return ExitCode::kWorkerFailed;
  }
  return ExitCode::kInternal;
}

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)), checkpoint_step_(options_.checkpoint_step) {
  for (const std::string& name : options_.nodes) {
    node_of_.try_emplace(name, nodes_.size());
    nodes_.push_back({.name = name});
  }
}

std::vector<SupervisorAction> Supervisor::Decide(absl::Duration now, const SupervisorEvent& event) {
  Actions out;
  if (phase_ != Phase::kOver) std::visit([&](const auto& value) { On(now, value, out); }, event);
  return out;
}

Supervisor::Node* Supervisor::FindNode(const std::string& name) {
  const auto it = node_of_.find(name);
  return it == node_of_.end() ? nullptr : &nodes_[it->second];
}

void Supervisor::SetReady(Node& node, bool is_ready) {
  if (std::exchange(node.is_ready, is_ready) == is_ready) return;
  is_ready ? ++num_ready_ : --num_ready_;
}

void Supervisor::SetActive(Node& node, bool is_active) {
  if (std::exchange(node.is_active, is_active) == is_active) return;
  is_active ? ++num_active_ : --num_active_;
}

int Supervisor::RankOf(const std::string& member) const {
  const auto it = rank_of_.find(member);
  return it == rank_of_.end() ? -1 : it->second;
}

void Supervisor::Tell(const Node& node, decltype(NodeCommand::what) what, Actions& out) const {
  if (node.is_active) out.push_back(ToNode{node.name, {attempt_, std::move(what)}});
}

// ---- the beginning of an attempt ----------------------------------------------------------------

void Supervisor::On(absl::Duration now, const Begin& event, Actions& out) { Gather(now, out); }

void Supervisor::Gather(absl::Duration now, Actions& out) {
  phase_ = Phase::kGathering;
  ++attempt_;
  result_.reset();
  ranks_.clear();
  rank_of_.clear();
  boards_.clear();
  generation_ = 0;
  is_recorded_ = false;
  hung_ = -1;
  num_showing_ = 0;
  stacks_deadline_ = absl::InfiniteDuration();
  watchdog_.emplace(options_.watchdog);
  if (stop_ != StopMode::kNone) {  // asked to stop before anything was started
    Close(stop_ == StopMode::kNow ? JobOutcome::Kind::kStoppedUnsaved : JobOutcome::Kind::kStoppedResumable);
    EndAttempt(absl::ZeroDuration(), out);
    return;
  }
  node_deadline_ = now + options_.node_timeout;
  for (Node& node : nodes_) {
    node.lost.reset();
    node.shows_stacks = false;
    if (!node.is_ready) out.push_back(StartAgent{node.name});
  }
  MaybeStart(out);
}

void Supervisor::On(absl::Duration now, const NodeReady& event, Actions& out) {
  Node* const node = FindNode(event.node);
  if (node == nullptr) return;
  SetReady(*node, true);
  node->lost.reset();
  node->slots = event.slots;
  node->facts = event.facts;
  if (phase_ == Phase::kGathering) MaybeStart(out);
}

bool Supervisor::CheckFacts(Actions& out) {
  NamedFacts facts;
  for (const Node& node : nodes_) facts.emplace_back(node.name, node.facts);
  if (attempt_ == 1) {
    for (std::string& note : NotesOnClocks(facts)) out.push_back(Say{std::move(note)});
  }
  const absl::Status status = CheckNodes(facts, options_.needs);
  if (status.ok() || !Close(JobOutcome::Kind::kFailed)) return status.ok();
  result_->not_started = status;
  EndAttempt(absl::ZeroDuration(), out);
  return false;
}

void Supervisor::MaybeStart(Actions& out) {
  if (num_ready_ < nodes_.size()) return;
  if (!CheckFacts(out)) return;
  phase_ = Phase::kRunning;
  Expect expect;
  expect.attempt = attempt_;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    node.first_rank = static_cast<int>(ranks_.size());
    for (const Slot& slot : node.slots) {
      rank_of_[slot.member] = static_cast<int>(ranks_.size());
      ranks_.push_back({slot.member, static_cast<int>(i), static_cast<int>(ranks_.size()) - node.first_rank});
      expect.slots.push_back(slot);
    }
  }
  out.push_back(ToCoordinator{std::move(expect)});
  for (Node& node : nodes_) {
    SetActive(node, true);
    Tell(node, StartWorkers{node.first_rank, node.slots}, out);
  }
}

// ---- what the coordinator notices ---------------------------------------------------------------

void Supervisor::On(absl::Duration now, const Notice& notice, Actions& out) {
  // What is left of an attempt that was ended for another reason says nothing of the next one.
  if (notice.attempt != attempt_ && notice.kind != Notice::Kind::kStopRequested) return;
  switch (notice.kind) {
    case Notice::Kind::kPrepared:
      if (result_) return;
      generation_ = notice.generation;
      out.push_back(RecordGeneration{notice.generation, static_cast<int>(ranks_.size())});
      return;
    case Notice::Kind::kProgress:
      out.push_back(ShowProgress{notice.generation, notice.rank, num_restarts_, notice.progress});
      return;
    case Notice::Kind::kGivenUp:
      watchdog_->NoteGivenUp();
      return;
    case Notice::Kind::kLeft: {
      const int rank = RankOf(notice.member);
      if (rank < 0) return;
      boards_.erase(rank);
      Rank& left = ranks_[static_cast<size_t>(rank)];
      left.has_left = true;
      if (hung_ == rank && !result_) hung_ = -1;  // it did not: the coordinator knew better
      Tell(nodes_[static_cast<size_t>(left.node)], NoteLeft{left.worker}, out);
      return;
    }
    case Notice::Kind::kFailed:
      HandleFailure(now, notice, out);
      return;
    case Notice::Kind::kFinished:
      if (Close(notice.stopped ? JobOutcome::Kind::kStoppedResumable : JobOutcome::Kind::kFinished)) {
        EndAttempt(absl::ZeroDuration(), out);
      }
      return;
    case Notice::Kind::kStopRequested:
      if (watchdog_) watchdog_->NoteStop(now);
      HandleStop(notice, out);
      return;
  }
}

// A job whose journal cannot be written (a full disk) starts all the same: training is worth more than this
// number, and what an earlier launch may have left running does not know this one's token either.
void Supervisor::On(absl::Duration now, const GenerationRecorded& event, Actions& out) {
  if (result_ || event.generation != generation_) return;
  is_recorded_ = true;
  out.push_back(ToCoordinator{Recorded{event.generation}});
}

void Supervisor::HandleStop(const Notice& notice, Actions& out) {
  if (stop_ == StopMode::kNone) stop_reason_ = notice.reason;
  stop_ = notice.stop;
  const bool at_once = stop_ == StopMode::kNow;
  out.push_back(RecordStop{absl::StrCat(at_once ? "stop now: " : "save and stop: ", notice.reason)});
  out.push_back(
      Say{at_once ? absl::StrCat("stopping now, without saving (", notice.reason, ")")
                  : absl::StrCat("saving and stopping (", notice.reason, ")",
                                 num_interrupts_ > 0 ? "; press Ctrl-C again to stop without saving" : "")});
  if (phase_ == Phase::kIdle || (!at_once && is_recorded_)) return;
  // Workers that are not running yet have nothing to save.
  if (!Close(at_once ? JobOutcome::Kind::kStoppedUnsaved : JobOutcome::Kind::kStoppedResumable)) return;
  EndAttempt(std::min(options_.stop_timeout, kStopNowTimeout), out);
}

void Supervisor::HandleFailure(absl::Duration now, const Notice& notice, Actions& out) {
  if (!Close(JobOutcome::Kind::kFailed)) return;
  result_->generation = notice.generation;
  result_->failure = notice.failure;
  if (const int rank = RankOf(notice.member); rank >= 0) result_->failure.rank = rank;
  const int failed = result_->failure.rank;
  const bool hangs = hung_ >= 0 && hung_ == failed && !ranks_[static_cast<size_t>(hung_)].ended;
  if (!hangs) return EndAttempt(options_.stop_timeout, out);
  out.push_back(Say{absl::StrCat(
      "rank ", hung_, " ", notice.failure.message,
      ranks_.size() == 1 ? "; its stack goes to its log" : "; the stacks of all ranks go to their logs")});
  AskForStacks(now, out);
}

// Nobody is ended before all have shown where they stand.
void Supervisor::AskForStacks(absl::Duration now, Actions& out) {
  stacks_deadline_ = now + options_.stacks_timeout;
  const Rank& hung = ranks_[static_cast<size_t>(hung_)];
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (!node.is_active) continue;
    node.shows_stacks = true;
    ++num_showing_;
    Tell(node, ShowStacks{static_cast<int>(i) == hung.node ? hung.worker : -1}, out);
  }
}

// ---- what nodes tell ----------------------------------------------------------------------------

void Supervisor::On(absl::Duration now, const NodeReport& report, Actions& out) {
  Node* const node = FindNode(report.node);
  if (node == nullptr || report.event.attempt != attempt_ || !node->is_active) return;
  std::visit([&](const auto& what) { Heard(now, *node, what, out); }, report.event.what);
}

void Supervisor::Heard(absl::Duration now, Node& node, const WorkersNotStarted& what, Actions& out) {
  if (!Close(JobOutcome::Kind::kFailed)) return;
  result_->not_started = what.why;
  EndAttempt(absl::ZeroDuration(), out);
}

void Supervisor::Heard(absl::Duration now, Node& node, const WorkerEnded& what, Actions& out) {
  const int index = node.first_rank + what.worker;
  Rank& rank = ranks_[static_cast<size_t>(index)];
  if (std::exchange(rank.ended, true)) return;
  rank.exit_code = what.exit_code;
  boards_.erase(index);
  out.push_back(ToCoordinator{what.exited});
}

void Supervisor::Heard(absl::Duration now, Node& node, const BoardsSeen& what, Actions& out) {
  for (size_t i = 0; i < node.slots.size(); ++i) boards_.erase(node.first_rank + static_cast<int>(i));
  for (const auto& [worker, standing] : what.boards) {
    const int rank = node.first_rank + worker;
    const Rank& owner = ranks_[static_cast<size_t>(rank)];
    if (!owner.ended && !owner.has_left) boards_[rank] = standing;
  }
}

void Supervisor::Heard(absl::Duration now, Node& node, const ActivitySeen& what, Actions& out) {
  const int index = node.first_rank + what.worker;
  Rank& rank = ranks_[static_cast<size_t>(index)];
  if (std::exchange(rank.is_asked, false)) rank.activity = what.activity;
}

void Supervisor::Heard(absl::Duration now, Node& node, const StacksShown& what, Actions& out) {
  if (!std::exchange(node.shows_stacks, false) || --num_showing_ > 0) return;
  if (phase_ == Phase::kRunning) EndAttempt(options_.stop_timeout, out);
}

void Supervisor::Heard(absl::Duration now, Node& node, const NodeMessage& what, Actions& out) {
  out.push_back(Say{what.text});
}

void Supervisor::Heard(absl::Duration now, Node& node, const NodeEnded& what, Actions& out) {
  SetActive(node, false);
  if (what.keeper_lost && Close(JobOutcome::Kind::kFailed)) {
    result_->failure.message = "the process that keeps the workers, trainctl-keeper, was killed";
    if (nodes_.size() > 1) absl::StrAppend(&result_->failure.message, " on ", node.name);
  }
  if (result_) {
    if (!what.log_tail.empty()) result_->log_tail = what.log_tail;
  } else if (Close(JobOutcome::Kind::kFailed)) {
    result_->failure.message = absl::StrCat("the workers of ", node.name, " were ended");
  }
  if (phase_ == Phase::kEnding) return MaybeSettle(out);
  EndAttempt(options_.stop_timeout, out);  // on the others
}

void Supervisor::On(absl::Duration now, const NodeLost& event, Actions& out) {
  Node* const node = FindNode(event.node);
  if (node == nullptr) return;
  SetReady(*node, false);
  node->lost = event.why;
  if (phase_ == Phase::kGathering) {
    if (attempt_ > 1) {  // it may come back: a node that starts again takes minutes
      node->retry_at = now + kAgentRetry;
      return;
    }
    if (!Close(JobOutcome::Kind::kFailed)) return;
    result_->not_started = EnvironmentError(absl::StrCat(event.node, ": ", event.why));
    return EndAttempt(absl::ZeroDuration(), out);
  }
  if (!node->is_active) return;
  SetActive(*node, false);
  for (size_t i = 0; i < node->slots.size(); ++i) {
    const int index = node->first_rank + static_cast<int>(i);
    Rank& rank = ranks_[static_cast<size_t>(index)];
    boards_.erase(index);
    if (std::exchange(rank.ended, true)) continue;
    Exited exited;
    exited.member = rank.member;
    exited.crashed = exited.killed = true;
    exited.description = absl::StrCat("lost with its node ", event.node, ": ", event.why);
    out.push_back(ToCoordinator{std::move(exited)});
  }
  if (phase_ == Phase::kEnding) return MaybeSettle(out);
  if (result_) EndAttempt(options_.stop_timeout, out);
}

std::string Supervisor::MissingNodes() const {
  std::string missing;
  for (const Node& node : nodes_) {
    if (node.is_ready) continue;
    absl::StrAppend(&missing, missing.empty() ? "" : "; ", node.name, ": ",
                    node.lost.value_or("its agent has not said that it is ready"));
  }
  return missing;
}

// ---- hangs --------------------------------------------------------------------------------------

void Supervisor::On(absl::Duration now, const SupervisorTick& event, Actions& out) {
  if (phase_ == Phase::kGathering) {
    for (Node& node : nodes_) {
      if (node.is_ready || !node.lost || now < node.retry_at) continue;
      node.retry_at = absl::InfiniteDuration();
      out.push_back(StartAgent{node.name});
    }
    if (now < node_deadline_ || !Close(JobOutcome::Kind::kFailed)) return;
    result_->not_started =
        EnvironmentError(absl::StrCat("not all nodes were ready within ",
                                      absl::FormatDuration(options_.node_timeout), ": ", MissingNodes()));
    return EndAttempt(absl::ZeroDuration(), out);
  }
  if (phase_ == Phase::kRunning && now >= stacks_deadline_) return EndAttempt(options_.stop_timeout, out);
  if (phase_ == Phase::kRunning && !result_) LookForHangs(now, out);
}

void Supervisor::LookForHangs(absl::Duration now, Actions& out) {
  if (hung_ >= 0 || !is_recorded_) return;
  const std::optional<Hang> hang =
      watchdog_->Look(now, boards_, [&](int rank) { return ActivityOf(rank, out); });
  if (!hang) return;
  hung_ = hang->rank;
  const Standing& board = boards_.at(hung_);
  out.push_back(ToCoordinator{
      Hung{ranks_[static_cast<size_t>(hung_)].member, hang->description, {board.step, board.phase}}});
}

// Busy as long as it is not known: the question comes again.
Activity Supervisor::ActivityOf(int rank, Actions& out) {
  Rank& asked = ranks_[static_cast<size_t>(rank)];
  if (asked.activity) return *std::exchange(asked.activity, std::nullopt);
  if (!std::exchange(asked.is_asked, true)) {
    Tell(nodes_[static_cast<size_t>(asked.node)], FindActivity{asked.worker}, out);
  }
  return Activity::kBusy;
}

// ---- the end of an attempt ----------------------------------------------------------------------

void Supervisor::On(absl::Duration now, const CheckpointSeen& event, Actions& out) {
  if (event.step <= checkpoint_step_) return;
  checkpoint_step_ = event.step;
  out.push_back(RecordCheckpoint{event.step, generation_});
}

// Whoever writes by its path writes into another folder, or makes it anew.
void Supervisor::On(absl::Duration now, const FolderLost& event, Actions& out) {
  if (!Close(JobOutcome::Kind::kFailed)) return;
  result_->failure.message = std::string(event.why.message());
  result_->exit_code = static_cast<int>(ExitCodeFor(event.why));
  EndAttempt(options_.stop_timeout, out);
}

void Supervisor::On(absl::Duration now, const Interrupted& event, Actions& out) {
  if (event.by_hand) ++num_interrupts_;
  const bool ends = phase_ == Phase::kEnding || (phase_ == Phase::kRunning && result_);
  if (num_interrupts_ >= 3 && ends) EndAttempt(absl::ZeroDuration(), out);
  const StopMode mode = num_interrupts_ >= 2 ? StopMode::kNow : StopMode::kAfterSave;
  out.push_back(ToCoordinator{StopRequest{mode, event.reason}});
}

bool Supervisor::Close(JobOutcome::Kind kind) {
  if (result_ || phase_ == Phase::kIdle) return false;
  result_ = Result{};
  result_->kind = kind;
  result_->generation = generation_;
  return true;
}

void Supervisor::EndAttempt(absl::Duration grace, Actions& out) {
  phase_ = Phase::kEnding;
  node_deadline_ = absl::InfiniteDuration();
  if (num_interrupts_ >= 3) grace = absl::ZeroDuration();
  const int failed = result_->kind == JobOutcome::Kind::kFailed ? result_->failure.rank : -1;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const bool has_failed = failed >= 0 && ranks_[static_cast<size_t>(failed)].node == static_cast<int>(i);
    Tell(nodes_[i], EndWorkers{grace, has_failed ? ranks_[static_cast<size_t>(failed)].worker : -1}, out);
  }
  MaybeSettle(out);
}

void Supervisor::MaybeSettle(Actions& out) {
  if (num_active_ > 0) return;
  phase_ = Phase::kSettling;
  out.push_back(Settle{});
}

FailureFacts Supervisor::Facts() const {
  FailureFacts facts{result_->failure.rank, result_->failure.step, checkpoint_step_, result_->exit_code,
                     result_->failure.message};
  if (facts.rank < 0) return facts;
  const Rank& failed = ranks_[static_cast<size_t>(facts.rank)];
  if (!facts.exit_code) facts.exit_code = result_->failure.exit_code;  // it may be killed before it exits
  if (failed.exit_code) facts.exit_code = failed.exit_code;
  if (nodes_.size() > 1) facts.node = nodes_[static_cast<size_t>(failed.node)].name;
  return facts;
}

void Supervisor::On(absl::Duration now, const Settled& event, Actions& out) {
  if (phase_ != Phase::kSettling) return;
  if (!result_->not_started.ok()) {
    phase_ = Phase::kOver;
    out.push_back(Conclude{result_->not_started});
    return;
  }
  if (result_->kind != JobOutcome::Kind::kFailed) {
    JobOutcome outcome;
    outcome.kind = result_->kind;
    if (outcome.kind == JobOutcome::Kind::kStoppedResumable) {
      outcome.message = checkpoint_step_ < 0 ? "stopped before the first checkpoint" : "saved and stopped";
    }
    if (outcome.kind == JobOutcome::Kind::kStoppedUnsaved) outcome.message = "stopped without saving";
    if (outcome.kind != JobOutcome::Kind::kFinished) outcome.stop_reason = stop_reason_;
    return ConcludeWith(std::move(outcome), out);
  }
  restart_ =
      DecideRestart(Facts(), previous_, restarts_used_, options_.max_restarts, stop_ != StopMode::kNone);
  if (restart_.restart) {
    out.push_back(CheckRestart{});
  } else {
    On(now, RestartChecked{}, out);
  }
}

void Supervisor::On(absl::Duration now, const RestartChecked& event, Actions& out) {
  if (phase_ != Phase::kSettling) return;
  if (!event.status.ok()) {
    restart_ = {false, absl::StrCat("not restarted: ", event.status.message())};
  } else if (restart_.restart && stop_ != StopMode::kNone) {
    restart_ = {false, "not restarted: a stop was requested"};  // while it was checked
  }
  const FailureFacts facts = Facts();
  const std::string what = Describe(facts);
  out.push_back(RecordFailure{facts, result_->generation});
  if (!restart_.restart) {
    JobOutcome outcome;
    outcome.kind = JobOutcome::Kind::kFailed;
    outcome.rank = facts.rank;
    outcome.step = facts.step;
    outcome.message = absl::StrCat(what, "; ", restart_.reason);
    outcome.log_tail = std::move(result_->log_tail);
    outcome.worker_exit_code = facts.exit_code;
    return ConcludeWith(std::move(outcome), out);
  }
  out.push_back(Say{what});
  for (const absl::string_view line : absl::StrSplit(result_->log_tail, '\n', absl::SkipEmpty())) {
    out.push_back(Say{absl::StrCat("  | ", line)});
  }
  out.push_back(Say{restart_.reason});
  out.push_back(RecordRestart{restart_.reason});
  ++num_restarts_;
  previous_ = facts;
  restarts_used_ = restart_.restarts_used;
  Gather(now, out);
}

void Supervisor::ConcludeWith(JobOutcome outcome, Actions& out) {
  outcome.generation = result_->generation;
  outcome.num_restarts = num_restarts_;
  phase_ = Phase::kOver;
  out.push_back(Conclude{std::move(outcome)});
}

}  // namespace trainctl::rendezvous
