#include "launcher/attempt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"
#include "launcher/worker_contract.h"

namespace trainctl::launcher {
namespace {

using rendezvous::Notice;
using rendezvous::StopMode;

constexpr int kTailLines = 20;
constexpr absl::Duration kCheckpointScanInterval = absl::Seconds(1);
constexpr absl::Duration kStopNowTimeout = absl::Seconds(3);  // there is nothing to save
constexpr absl::Duration kKillTimeout = absl::Seconds(30);

// How many processes the kernel's out-of-memory killer has ended since boot; 0 when unknown.
int64_t OomKills() {
  const absl::StatusOr<std::string> text = ReadFile("/proc/vmstat");
  if (!text.ok()) return 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    int64_t count = 0;
    if (field.first == "oom_kill" && absl::SimpleAtoi(field.second, &count)) return count;
  }
  return 0;
}

// Deaths that explain the failure of others, and are never explained by it.
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

absl::StatusOr<AttemptResult> Attempt::Run() {
  oom_kills_before_ = OomKills();
  const absl::Status started = StartWorkers();
  if (!started.ok()) {
    BeginKilling(absl::ZeroDuration());
    done_ = true;
  }
  while (!done_ || !AllExited()) {
    PollOnce();
    if (killing_ && job_.clock.Monotonic() >= kill_deadline_) KillEverything();
  }
  KillEverything();  // what the workers left behind
  DrainOutput();
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.log.Flush([&](absl::string_view line) { job_.console.WorkerLine(static_cast<int>(i), line); });
    if (worker.output_fd >= 0) ::close(std::exchange(worker.output_fd, -1));
    job_.tree.RemoveOwn(worker.process.pid());
    worker.process.Reap();
  }
  NoteCheckpoint();
  TRAINCTL_RETURN_IF_ERROR(started);
  if (result_.kind == AttemptResult::Kind::kFailed && result_.failure.rank >= 0) {
    const Worker& failed = workers_[result_.failure.rank];
    if (!failed.exit->signaled) result_.exit_code = failed.exit->code;
    result_.log_tail = failed.log.Tail(kTailLines);
  }
  return std::move(result_);
}

absl::Status Attempt::StartWorkers() {
  rendezvous::Expect expect;
  for (int i = 0; i < job_.options.num_workers; ++i) {
    expect.slots.push_back(
        {MemberName(kLocalNode, i), kLocalNode, i, job_.shares[i].threads, job_.shares[i].cores});
  }
  job_.service.Submit(expect);
  workers_.reserve(job_.options.num_workers);
  for (int i = 0; i < job_.options.num_workers; ++i) TRAINCTL_RETURN_IF_ERROR(StartWorker(i));
  return absl::OkStatus();
}

absl::Status Attempt::StartWorker(int worker_id) {
  const run::RunFolder& run = *job_.options.run;
  TRAINCTL_ASSIGN_OR_RETURN(WorkerLog log, WorkerLog::Open(run.log_path(worker_id)));
  TRAINCTL_ASSIGN_OR_RETURN(ProgressBoard board, ProgressBoard::Create());
  // The child's end blocks, ours does not.
  int output[2];
  if (::pipe2(output, O_CLOEXEC) != 0) return ErrnoError("create", "a pipe", errno);
  ::fcntl(output[0], F_SETFL, O_NONBLOCK);
  SpawnOptions spawn;
  spawn.argv = {job_.options.worker_program};
  for (std::string& flag :
       FormatWorkerFlags({run.path(), job_.socket_path, run.token_path(), worker_id, board.fd()})) {
    spawn.argv.push_back(std::move(flag));
  }
  spawn.argv.insert(spawn.argv.end(), job_.options.worker_args.begin(), job_.options.worker_args.end());
  spawn.env = job_.env;
  const std::string threads = absl::StrCat(job_.shares[worker_id].threads);
  spawn.env.push_back("OMP_NUM_THREADS=" + threads);
  spawn.env.push_back("MKL_NUM_THREADS=" + threads);
  spawn.cores = job_.shares[worker_id].cores;
  spawn.new_session = true;
  spawn.die_with_parent = true;
  spawn.stdout_fd = output[1];
  spawn.stderr_fd = output[1];
  spawn.inherited_fds = {board.fd()};
  absl::StatusOr<Subprocess> process = Subprocess::Start(spawn);
  ::close(output[1]);
  if (!process.ok()) {
    ::close(output[0]);
    return process.status();
  }
  job_.tree.AddOwn(process->pid());
  workers_.push_back(
      {std::move(process).value(), std::move(log), std::move(board), output[0], std::nullopt, false});
  return absl::OkStatus();
}

void Attempt::PollOnce() {
  std::vector<pollfd> fds = {{job_.signals.fd(), POLLIN, 0}, {job_.service.notice_fd(), POLLIN, 0}};
  for (const Worker& worker : workers_) {
    if (worker.output_fd >= 0) fds.push_back({worker.output_fd, POLLIN, 0});
    if (!worker.exit) fds.push_back({worker.process.pidfd(), POLLIN, 0});
  }
  const absl::Duration wake = std::min(kill_deadline_, next_checkpoint_scan_) - job_.clock.Monotonic();
  const absl::Duration timeout = std::clamp(wake, absl::ZeroDuration(), kCheckpointScanInterval);
  ::poll(fds.data(), fds.size(),
         static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)))));
  for (size_t i = 0; i < workers_.size(); ++i) ReadOutput(static_cast<int>(i));
  HandleSignals();
  HandleExits();
  HandleNotices();
  if (job_.clock.Monotonic() >= next_checkpoint_scan_) {
    NoteCheckpoint();
    next_checkpoint_scan_ = job_.clock.Monotonic() + kCheckpointScanInterval;
  }
}

bool Attempt::ReadOutput(int worker_id) {
  Worker& worker = workers_[worker_id];
  if (worker.output_fd < 0) return false;
  char buffer[64 << 10];
  const ssize_t count = ::read(worker.output_fd, buffer, sizeof(buffer));
  if (count == 0) ::close(std::exchange(worker.output_fd, -1));
  if (count <= 0) return false;
  worker.log.Add(absl::string_view(buffer, static_cast<size_t>(count)),
                 [&](absl::string_view line) { job_.console.WorkerLine(worker_id, line); });
  if (!worker.log.error().ok() && !std::exchange(worker.log_error_shown, true)) {
    job_.console.Message(absl::StrCat(worker.log.error().message(), "; its output is only shown here"));
  }
  return true;
}

// Everything that the dead have written. Nobody writes any more, so this ends.
void Attempt::DrainOutput() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    while (ReadOutput(static_cast<int>(i))) {
    }
  }
}

void Attempt::HandleExits() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].exit) continue;
    workers_[i].exit = workers_[i].process.TryWait();
    if (!workers_[i].exit) continue;
    const ExitStatus& exit = *workers_[i].exit;
    std::string description = exit.Describe();
    if (exit.signaled && exit.code == SIGKILL && !killing_) {
      absl::StrAppend(&description, OomKills() > oom_kills_before_
                                        ? ": the machine ran out of memory and the kernel ended it"
                                        : ": by another process, or for lack of memory in its container");
    }
    job_.service.Submit(rendezvous::Exited{MemberName(kLocalNode, static_cast<int>(i)), IsClean(exit),
                                           IsCrash(exit), std::move(description), workers_[i].board.Read(),
                                           IsEcho(exit)});
  }
}

void Attempt::HandleSignals() {
  for (const int signal_number : job_.signals.Take()) {
    if (signal_number == SIGINT) ++job_.num_interrupts;
    if (job_.num_interrupts >= 3 && killing_) kill_deadline_ = job_.clock.Monotonic();
    const StopMode mode = job_.num_interrupts >= 2 ? StopMode::kNow : StopMode::kAfterSave;
    job_.service.Submit(rendezvous::StopRequest{mode, SignalName(signal_number)});
  }
}

void Attempt::HandleNotices() {
  for (const Notice& notice : job_.service.TakeNotices()) {
    switch (notice.kind) {
      case Notice::Kind::kStarted: {
        result_.generation = notice.generation;
        run::JournalEvent event{run::EventKind::kGeneration};
        event.generation = notice.generation;
        event.world_size = job_.options.num_workers;
        Journal(std::move(event));
        break;
      }
      case Notice::Kind::kProgress:
        job_.console.Report(
            {notice.generation, notice.rank, static_cast<int>(job_.num_restarts), notice.progress});
        break;
      case Notice::Kind::kFailed:
        HandleFailure(notice);
        break;
      case Notice::Kind::kFinished: {
        const bool stopped = std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
          return worker.exit && worker.exit->code != 0;
        });
        result_.kind = stopped ? AttemptResult::Kind::kStopped : AttemptResult::Kind::kFinished;
        done_ = true;
        break;
      }
      case Notice::Kind::kStopRequested: {
        job_.stop = notice.stop;
        run::JournalEvent event{run::EventKind::kStop};
        event.message =
            absl::StrCat(notice.stop == StopMode::kNow ? "stop now: " : "save and stop: ", notice.reason);
        Journal(std::move(event));
        const bool interrupted = notice.reason == SignalName(SIGINT);
        job_.console.Message(
            notice.stop == StopMode::kNow
                ? absl::StrCat("stopping now, without saving (", notice.reason, ")")
                : absl::StrCat("saving and stopping (", notice.reason, ")",
                               interrupted ? "; press Ctrl-C again to stop without saving" : ""));
        if (notice.stop == StopMode::kNow && !done_) {
          result_.kind = AttemptResult::Kind::kStoppedNow;
          done_ = true;
          BeginKilling(std::min(job_.options.stop_timeout, kStopNowTimeout));
        }
        break;
      }
    }
  }
}

void Attempt::HandleFailure(const Notice& notice) {
  if (std::exchange(done_, true)) return;
  result_.kind = AttemptResult::Kind::kFailed;
  result_.generation = notice.generation;
  result_.failure = notice.failure;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (MemberName(kLocalNode, static_cast<int>(i)) != notice.member) continue;
    result_.failure.rank = static_cast<int>(i);
  }
  BeginKilling(job_.options.stop_timeout);
}

void Attempt::NoteCheckpoint() {
  if (const absl::Status in_place = job_.options.run->CheckInPlace(); !in_place.ok())
    return LoseRunFolder(in_place);
  const int64_t step = job_.options.run->NewestCheckpointStep(job_.checkpoint_step);
  if (step <= job_.checkpoint_step) return;
  job_.checkpoint_step = step;
  run::JournalEvent event{run::EventKind::kCheckpoint};
  event.step = step;
  event.generation = result_.generation;
  Journal(std::move(event));
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
  if (std::exchange(killing_, true)) return;
  kill_deadline_ = job_.clock.Monotonic() + grace;
  for (Worker& worker : workers_) {
    worker.process.SignalGroup(SIGTERM);
    worker.process.SignalGroup(SIGCONT);  // one that is stopped could not obey
  }
}

void Attempt::KillEverything() {
  for (Worker& worker : workers_) worker.process.SignalGroup(SIGKILL);
  int num_killed = 0;
  const absl::Status status = job_.tree.KillAll(kKillTimeout, &num_killed);
  if (!status.ok()) job_.console.Message(status.message());
  kill_deadline_ = job_.clock.Monotonic() + absl::Milliseconds(50);
}

bool Attempt::AllExited() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.exit.has_value(); });
}

void Attempt::Journal(run::JournalEvent event) {
  const absl::Status status = job_.journal.Append(std::move(event));
  if (!status.ok()) job_.console.Message(status.message());
}

}  // namespace trainctl::launcher
