#include "launcher/job.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/subprocess.h"
#include "launcher/attempt.h"
#include "launcher/restart_policy.h"
#include "launcher/worker_contract.h"

namespace trainctl::launcher {
namespace {

constexpr const char* kOwnNames[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"};

// This process's environment, overridden by launch.env, without the names set per worker.
std::vector<std::string> WorkerEnvironment(const std::map<std::string, std::string>& env) {
  std::vector<std::string> entries;
  for (std::string& entry : CurrentEnvironment()) {
    const std::string name(absl::string_view(entry).substr(0, entry.find('=')));
    bool own = env.contains(name);
    for (const char* own_name : kOwnNames) own = own || name == own_name;
    if (!own) entries.push_back(std::move(entry));
  }
  for (const auto& [name, value] : env) entries.push_back(absl::StrCat(name, "=", value));
  if (!SaysHowThreadsWait(entries)) entries.push_back(absl::StrCat(kSpinVariable, "=", kSpinCount));
  return entries;
}

absl::Status CheckOptions(const JobOptions& options) {
  TRAINCTL_CHECK(options.run != nullptr && options.rendezvous != nullptr);
  if (options.num_workers < 1)
    return UsageError(absl::StrCat("a job needs workers, not ", options.num_workers));
  if (options.threads_per_worker && *options.threads_per_worker < 1) {
    return UsageError(
        absl::StrCat("cluster.threads_per_worker must be at least 1, not ", *options.threads_per_worker));
  }
  if (options.detect_timeout < absl::Milliseconds(100)) {
    return UsageError(absl::StrCat("launch.detect_timeout must be at least 100ms, not ",
                                   absl::FormatDuration(options.detect_timeout)));
  }
  if (::access(options.worker_program.c_str(), X_OK) != 0) {
    return ErrnoError("execute", options.worker_program, errno);
  }
  return CheckWorkerEnv(options.env);
}

run::RunStatus StatusOf(JobOutcome::Kind kind) {
  switch (kind) {
    case JobOutcome::Kind::kFinished:
      return run::RunStatus::kFinished;
    case JobOutcome::Kind::kStoppedResumable:
      return run::RunStatus::kStopped;
    case JobOutcome::Kind::kStoppedUnsaved:
      return run::RunStatus::kStoppedUnsaved;
    case JobOutcome::Kind::kFailed:
      return run::RunStatus::kFailed;
  }
  return run::RunStatus::kFailed;
}

absl::StatusOr<JobOutcome> RunAttempts(JobContext& job) {
  std::optional<FailureFacts> previous;
  int64_t restarts_used = 0;  // since a new checkpoint; job.num_restarts are all of this launch
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(AttemptResult result, Attempt(job).Run());
    JobOutcome outcome;
    outcome.generation = result.generation;
    outcome.num_restarts = job.num_restarts;
    switch (result.kind) {
      case AttemptResult::Kind::kFinished:
        outcome.kind = JobOutcome::Kind::kFinished;
        return outcome;
      case AttemptResult::Kind::kStopped:
        outcome.kind = JobOutcome::Kind::kStoppedResumable;
        outcome.message = "saved and stopped";
        return outcome;
      case AttemptResult::Kind::kStoppedNow:
        outcome.kind = JobOutcome::Kind::kStoppedUnsaved;
        outcome.message = "stopped without saving";
        return outcome;
      case AttemptResult::Kind::kFailed:
        break;
    }
    const FailureFacts facts{result.failure.rank, result.failure.step, job.checkpoint_step, result.exit_code,
                             result.failure.message};
    RestartDecision decision = DecideRestart(facts, previous, restarts_used, job.options.max_restarts,
                                             job.stop != rendezvous::StopMode::kNone);
    if (decision.restart && job.options.check_restart) {
      const absl::Status fit = job.options.check_restart();
      if (!fit.ok()) decision = {false, absl::StrCat("not restarted: ", fit.message())};
    }
    const std::string what = Describe(facts);
    run::JournalEvent exit_event{run::EventKind::kWorkerExit};
    exit_event.generation = result.generation;
    exit_event.rank = facts.rank;
    exit_event.step = facts.step;
    exit_event.message = facts.message;
    job.Record(std::move(exit_event));
    if (!decision.restart) {
      outcome.kind = JobOutcome::Kind::kFailed;
      outcome.rank = facts.rank;
      outcome.step = facts.step;
      outcome.message = absl::StrCat(what, "; ", decision.reason);
      outcome.log_tail = std::move(result.log_tail);
      outcome.worker_exit_code = result.exit_code;
      return outcome;
    }
    job.console.Message(what);
    for (const absl::string_view line : absl::StrSplit(result.log_tail, '\n', absl::SkipEmpty())) {
      job.console.Message(absl::StrCat("  | ", line));
    }
    job.console.Message(decision.reason);
    run::JournalEvent restart_event{run::EventKind::kRestart};
    restart_event.message = decision.reason;
    job.Record(std::move(restart_event));
    ++job.num_restarts;
    previous = facts;
    restarts_used = decision.restarts_used;
  }
}

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

absl::Status CheckWorkerEnv(const std::map<std::string, std::string>& env) {
  for (const auto& [name, value] : env) {
    if (name.empty() || absl::StrContains(name, "=") || name.find('\0') != std::string::npos ||
        value.find('\0') != std::string::npos) {
      return UsageError(
          absl::StrCat("launch.env: '", absl::CEscape(name), "' cannot be an environment variable"));
    }
    for (const char* own_name : kOwnNames) {
      if (name != own_name) continue;
      return UsageError(absl::StrCat("launch.env.", name, ": the launcher sets ", name, " itself",
                                     "; set cluster.threads_per_worker instead"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<JobOutcome> RunJob(const JobOptions& options) {
  TRAINCTL_RETURN_IF_ERROR(CheckOptions(options));
  static const RealClock real_clock;  // of what a disk that stands still keeps waiting, too
  const Clock& clock = options.clock != nullptr ? *options.clock : real_clock;
  run::RunFolder& run = *options.run;
  TRAINCTL_RETURN_IF_ERROR(run.Lock());
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunState state, run.ReadState());
  TRAINCTL_ASSIGN_OR_RETURN(run::Journal opened, run::Journal::Open(run.journal_path(), &clock));
  const auto journal = std::make_shared<run::Journal>(std::move(opened));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int> cores, AllowedCores());

  std::optional<SignalPipe> own_signals;
  if (options.signals == nullptr) {
    TRAINCTL_ASSIGN_OR_RETURN(SignalPipe installed, SignalPipe::Install());
    own_signals.emplace(std::move(installed));
  }
  SignalPipe& signals = options.signals != nullptr ? *options.signals : *own_signals;
  Orphans orphans;

  run.RemoveSocket(state.socket);  // left behind by a launcher that was killed
  rendezvous::ServiceOptions service_options;
  TRAINCTL_ASSIGN_OR_RETURN(service_options.socket_path, run.MakeSocketPath());
  service_options.token_path = run.token_path();
  service_options.timeouts = rendezvous::Timeouts::FromDetect(options.detect_timeout);
  service_options.last_generation = state.generation;
  TRAINCTL_ASSIGN_OR_RETURN(const std::unique_ptr<rendezvous::RendezvousService> service,
                            options.rendezvous(service_options));

  run::JournalEvent launch{run::EventKind::kLaunch};
  launch.world_size = options.num_workers;
  launch.pid = ::getpid();
  launch.socket = service_options.socket_path;
  launch.token_file = service_options.token_path;
  TRAINCTL_RETURN_IF_ERROR(journal->Append(std::move(launch)));

  DiskQueue disk;
  Console console(options.observer);
  JobContext job{options, clock, journal, disk, *service, console, orphans, signals};
  job.shares = DivideCores(cores, options.num_workers, options.threads_per_worker);
  job.env = WorkerEnvironment(options.env);
  job.socket_path = service_options.socket_path;
  job.checkpoint_step = run.NewestCheckpointStep();
  absl::StatusOr<JobOutcome> outcome = RunAttempts(job);
  run.RemoveSocket(service_options.socket_path);
  run::JournalEvent end{run::EventKind::kEnd};
  end.status = outcome.ok() ? StatusOf(outcome->kind) : run::RunStatus::kFailed;
  end.message = outcome.ok() ? outcome->message : std::string(outcome.status().message());
  if (outcome.ok() && outcome->kind == JobOutcome::Kind::kFailed) {
    end.rank = outcome->rank;
    end.step = outcome->step;
    end.exit_code = outcome->worker_exit_code;
  }
  job.Record(std::move(end));
  if (!disk.Wait(options.disk_patience)) {
    console.Message(
        absl::StrCat("the disk of ", run.path(), " stands still: the journal does not tell how this ended"));
  }
  job.ShowDiskErrors();
  return outcome;
}

}  // namespace trainctl::launcher
