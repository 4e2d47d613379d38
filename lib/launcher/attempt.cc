#include "launcher/attempt.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "launcher/worker_contract.h"
#include "launcher/worker_signals.h"

namespace trainctl::launcher {
namespace {

using rendezvous::Notice;
using rendezvous::StopMode;

constexpr int kTailLines = 20;
constexpr absl::Duration kCheckpointLookInterval = absl::Seconds(1);
constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
constexpr absl::Duration kStopNowTimeout = absl::Seconds(3);  // there is nothing to save
constexpr absl::Duration kOrphanTimeout = absl::Seconds(5);
constexpr absl::Duration kKeeperPatience = absl::Seconds(15);  // it tells of what it cannot end long before

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

// launch.stop_timeout may be 0; to end takes a moment all the same.
absl::Duration PatienceAtTheEnd(const JobOptions& options) {
  return std::max(options.stop_timeout, absl::Seconds(1));
}

WatchdogLimits LimitsOf(const JobOptions& options) {
  WatchdogLimits limits;
  limits.most = options.hang_timeout;
  limits.collective = options.collective_timeout;
  limits.stop = PatienceAtTheEnd(options);
  return limits;
}

}  // namespace

void JobContext::Record(run::JournalEvent event) {
  disk.Post([journal = journal, event = std::move(event)] { return journal->Append(event); });
}

void JobContext::ShowDiskErrors() {
  for (const absl::Status& error : disk.TakeErrors()) console.Message(error.message());
}

Attempt::Attempt(JobContext& job)
    : job_(job), news_(std::make_shared<DiskNews>()), watchdog_(LimitsOf(job.options)) {}

absl::StatusOr<AttemptResult> Attempt::Run() {
  HandleSignals();
  HandleNotices();
  if (done_) return std::move(result_);  // asked to stop before anything was started
  oom_kills_before_ = CountOomKills();
  rendezvous::Expect expect;
  for (int i = 0; i < job_.options.num_workers; ++i) {
    const CpuShare& share = job_.shares[static_cast<size_t>(i)];
    expect.slots.push_back({MemberName(kLocalNode, i), kLocalNode, i, share.threads, share.cores});
  }
  job_.service.Submit(expect);
  TRAINCTL_ASSIGN_OR_RETURN(WorkerSet workers, WorkerSet::Start(job_));
  workers_.emplace(std::move(workers));
  job_.orphans.AddOwn(workers_->keeper_pid());
  while (!is_over_) {
    PollOnce();
    if (done_ && workers_->AllExited()) KillEverything();  // what they left behind
    if (is_killing_ && Now() >= kill_deadline_) KillEverything();
    if (Now() >= keeper_deadline_) {
      keeper_deadline_ = absl::InfiniteDuration();
      ::kill(workers_->keeper_pid(), SIGKILL);  // it was stopped, say; the kernel ends the workers with it
    }
  }
  workers_->DrainOutput();
  job_.orphans.RemoveOwn(workers_->keeper_pid());
  LookForCheckpoint();
  job_.disk.Wait(job_.options.disk_patience);
  HandleDisk();
  TRAINCTL_RETURN_IF_ERROR(start_);
  if (result_.kind == AttemptResult::Kind::kFailed && result_.failure.rank >= 0) {
    const WorkerSet::Worker& failed = workers_->at(result_.failure.rank);
    if (failed.exit && !failed.exit->signaled) result_.exit_code = failed.exit->code;
    result_.log_tail = failed.log.Tail(kTailLines);
  }
  return std::move(result_);
}

void Attempt::PollOnce() {
  std::vector<pollfd> fds = {
      {job_.signals.fd(), POLLIN, 0}, {job_.service.notice_fd(), POLLIN, 0}, {job_.disk.fd(), POLLIN, 0}};
  workers_->AddPollFds(fds);
  if (stack_) fds.push_back({stack_->fd(), POLLIN, 0});
  const absl::Duration timeout = std::clamp(kill_deadline_ - Now(), absl::ZeroDuration(), kLookInterval);
  ::poll(fds.data(), fds.size(),
         static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)))));
  workers_->ReadOutput();
  HandleSignals();
  HandleNotices();  // whoever has announced its end has done so before it ends
  HandleEvents();
  if (!done_) LookForHangs();
  EndTheSlowToLeave();
  ContinueStackDump();
  if (Now() >= next_checkpoint_look_) {
    LookForCheckpoint();
    next_checkpoint_look_ = Now() + kCheckpointLookInterval;
  }
  HandleDisk();
}

void Attempt::HandleEvents() {
  for (const KeeperEvent& event : workers_->TakeEvents()) {
    switch (event.kind) {
      case KeeperEvent::Kind::kStarted:
        break;
      case KeeperEvent::Kind::kNotStarted:
        start_ = ErrnoError("execute", job_.options.worker_program, event.error);
        done_ = true;
        BeginKilling(absl::ZeroDuration());
        break;
      case KeeperEvent::Kind::kExited:
        HandleExit(event);
        break;
      case KeeperEvent::Kind::kStuck:
        job_.console.Message(absl::StrCat("process ", event.pid,
                                          event.worker >= 0 ? absl::StrCat(" (rank ", event.worker, ")") : "",
                                          " was killed and does not end: it hangs in the kernel, on a disk "
                                          "or a device, and is left behind"));
        is_over_ = true;
        break;
      case KeeperEvent::Kind::kAllGone:
        is_over_ = true;
        break;
      case KeeperEvent::Kind::kLost:
        HandleLostKeeper();
        break;
    }
  }
}

void Attempt::HandleExit(const KeeperEvent& event) {
  const ExitStatus& exit = event.exit;
  const WorkerSet::Worker& worker = workers_->at(event.worker);
  std::string description = exit.Describe();
  if (exit.signaled && exit.code == SIGKILL && !is_killing_ && !worker.left) {
    absl::StrAppend(&description, DescribeSigkill(oom_kills_before_, CountOomKills()));
  }
  if (worker.left && !IsClean(exit)) {
    job_.console.Message(absl::StrCat("rank ", event.worker, ": ", description,
                                      " after its work was done and saved; nothing is lost"));
  }
  job_.service.Submit(rendezvous::Exited{MemberName(kLocalNode, event.worker), IsClean(exit), IsCrash(exit),
                                         std::move(description), worker.board.Read(), IsEcho(exit),
                                         exit.signaled && exit.code == SIGKILL});
}

// The kernel has ended the workers with it; what they left behind is this process's by now.
void Attempt::HandleLostKeeper() {
  is_over_ = true;
  for (int i = 0; i < workers_->size(); ++i) {
    if (!workers_->at(i).exit) workers_->at(i).exit = ExitStatus{.signaled = true, .code = SIGKILL};
  }
  const absl::Status status = job_.orphans.KillAll(kOrphanTimeout);
  if (!status.ok()) job_.console.Message(status.message());
  if (std::exchange(done_, true)) return;
  result_.kind = AttemptResult::Kind::kFailed;
  result_.failure = {};
  result_.failure.message = "the process that keeps the workers, trainctl-keeper, was killed";
}

void Attempt::HandleSignals() {
  for (const int signal_number : job_.signals.Take()) {
    if (signal_number == SIGINT) ++job_.num_interrupts;
    if (job_.num_interrupts >= 3 && is_killing_) kill_deadline_ = Now();
    const StopMode mode = job_.num_interrupts >= 2 ? StopMode::kNow : StopMode::kAfterSave;
    job_.service.Submit(rendezvous::StopRequest{mode, SignalName(signal_number)});
  }
}

void Attempt::HandleNotices() {
  for (const Notice& notice : job_.service.TakeNotices()) {
    switch (notice.kind) {
      case Notice::Kind::kPrepared:
        RecordGeneration(notice.generation);
        break;
      case Notice::Kind::kProgress:
        job_.console.Report(
            {notice.generation, notice.rank, static_cast<int>(job_.num_restarts), notice.progress});
        break;
      case Notice::Kind::kGivenUp:
        watchdog_.NoteGivenUp();
        break;
      case Notice::Kind::kLeft:
        workers_->at(notice.rank).left = Now();
        break;
      case Notice::Kind::kFailed:
        HandleFailure(notice);
        break;
      case Notice::Kind::kFinished:
        if (std::exchange(done_, true)) break;
        result_.kind = notice.stopped ? AttemptResult::Kind::kStopped : AttemptResult::Kind::kFinished;
        break;
      case Notice::Kind::kStopRequested:
        HandleStop(notice);
        break;
    }
  }
}

void Attempt::HandleStop(const Notice& notice) {
  job_.stop = notice.stop;
  watchdog_.NoteStop(Now());
  run::JournalEvent event{run::EventKind::kStop};
  event.message =
      absl::StrCat(notice.stop == StopMode::kNow ? "stop now: " : "save and stop: ", notice.reason);
  job_.Record(std::move(event));
  const bool interrupted = notice.reason == SignalName(SIGINT);
  job_.console.Message(notice.stop == StopMode::kNow
                           ? absl::StrCat("stopping now, without saving (", notice.reason, ")")
                           : absl::StrCat("saving and stopping (", notice.reason, ")",
                                          interrupted ? "; press Ctrl-C again to stop without saving" : ""));
  if (notice.stop == StopMode::kNow || !is_running_) EndAtOnce(notice.stop);
}

// Workers that are not running yet have nothing to save.
void Attempt::EndAtOnce(StopMode mode) {
  if (std::exchange(done_, true)) return;
  result_.kind = mode == StopMode::kNow ? AttemptResult::Kind::kStoppedNow : AttemptResult::Kind::kStopped;
  BeginKilling(std::min(job_.options.stop_timeout, kStopNowTimeout));
}

// On disk before anybody goes, so that the next launcher gives another one. A job whose journal cannot be
// written (a full disk) starts all the same: training is worth more than this number, and what an earlier
// launch may have left running does not know this one's token either.
void Attempt::RecordGeneration(int64_t generation) {
  if (done_) return;
  result_.generation = generation;
  run::JournalEvent event{run::EventKind::kGeneration};
  event.generation = generation;
  event.world_size = job_.options.num_workers;
  job_.disk.Post([journal = job_.journal, news = news_, event = std::move(event)] {
    absl::Status status = journal->Append(event);
    news->recorded_generation = event.generation;
    return status;
  });
}

void Attempt::HandleFailure(const Notice& notice) {
  if (std::exchange(done_, true)) return;
  result_.kind = AttemptResult::Kind::kFailed;
  result_.generation = notice.generation;
  result_.failure = notice.failure;
  for (int i = 0; i < workers_->size(); ++i) {
    if (MemberName(kLocalNode, i) == notice.member) result_.failure.rank = i;
  }
  const bool hangs = hung_ >= 0 && hung_ == result_.failure.rank && !workers_->at(hung_).exit;
  if (!hangs) return BeginKilling(job_.options.stop_timeout);
  job_.console.Message(
      absl::StrCat("rank ", hung_, " ", notice.failure.message, "; its stack goes to its log"));
  workers_->SignalMainThread(hung_, ShowStackSignal());
  stack_.emplace(workers_->at(hung_).pid, job_.clock);
}

void Attempt::LookForHangs() {
  if (hung_ >= 0 || !is_running_) return;
  const std::optional<Hang> hang = watchdog_.Look(
      Now(), workers_->Boards(), [this](int rank) { return activity_.Of(workers_->at(rank).pid); });
  if (!hang) return;
  hung_ = hang->rank;
  job_.service.Submit(
      rendezvous::Hung{MemberName(kLocalNode, hung_), hang->description, workers_->at(hung_).board.Read()});
}

void Attempt::ContinueStackDump() {
  if (!stack_) return;
  if (!stack_->Continue([this](absl::string_view text) { workers_->AddToLog(hung_, text); })) return;
  stack_.reset();
  workers_->Signal(hung_, SIGKILL);  // it cannot obey anything less
  BeginKilling(job_.options.stop_timeout);
}

// Their work is done and saved, so how they end is of no account; that they do is.
void Attempt::EndTheSlowToLeave() {
  for (int i = 0; i < workers_->size(); ++i) {
    WorkerSet::Worker& worker = workers_->at(i);
    if (worker.exit || !worker.left || Now() < *worker.left + PatienceAtTheEnd(job_.options)) continue;
    worker.left = absl::InfiniteDuration();  // once
    job_.console.Message(absl::StrCat("rank ", i, " has done and saved its work, but does not end within ",
                                      absl::FormatDuration(job_.options.stop_timeout),
                                      " (launch.stop_timeout)"));
    workers_->Signal(i, SIGKILL);
  }
}

void Attempt::LookForCheckpoint() {
  if (news_->is_looking.exchange(true)) return;
  job_.disk.Post([run = job_.options.run, news = news_, above = job_.checkpoint_step] {
    const absl::Status in_place = run->CheckInPlace();
    if (in_place.ok()) {
      const int64_t step = run->NewestCheckpointStep(above);
      if (step > above) news->checkpoint_step = step;
    } else {
      std::lock_guard lock(news->mutex);
      news->lost_folder = in_place;
    }
    news->is_looking = false;
    return absl::OkStatus();
  });
}

void Attempt::HandleDisk() {
  job_.ShowDiskErrors();
  if (const int64_t recorded = news_->recorded_generation; recorded > told_generation_ && !done_) {
    told_generation_ = recorded;
    is_running_ = true;
    job_.service.Submit(rendezvous::Recorded{recorded});
  }
  absl::Status lost;
  {
    std::lock_guard lock(news_->mutex);
    lost = news_->lost_folder;
  }
  if (!lost.ok()) LoseRunFolder(lost);
  const int64_t step = news_->checkpoint_step;
  if (step <= job_.checkpoint_step) return;
  job_.checkpoint_step = step;
  run::JournalEvent event{run::EventKind::kCheckpoint};
  event.step = step;
  event.generation = result_.generation;
  job_.Record(std::move(event));
}

// Whoever writes by its path writes into another folder, or makes it anew.
void Attempt::LoseRunFolder(const absl::Status& why) {
  if (std::exchange(done_, true)) return;
  result_.kind = AttemptResult::Kind::kFailed;
  result_.failure.message = std::string(why.message());
  result_.exit_code = static_cast<int>(ExitCodeFor(why));
  BeginKilling(job_.options.stop_timeout);
}

void Attempt::BeginKilling(absl::Duration grace) {
  if (!workers_ || std::exchange(is_killing_, true)) return;
  kill_deadline_ = Now() + grace;
  for (int i = 0; i < workers_->size(); ++i) {
    workers_->Signal(i, SIGTERM);
    workers_->Signal(i, SIGCONT);  // one that is stopped could not obey
  }
}

void Attempt::KillEverything() {
  kill_deadline_ = absl::InfiniteDuration();
  if (workers_->KillAll()) keeper_deadline_ = Now() + kKeeperPatience;
}

}  // namespace trainctl::launcher
