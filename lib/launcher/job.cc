#include "launcher/job.h"

#include <sys/random.h>
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

namespace trainctl::launcher {
namespace {

constexpr char kSpawnIdName[] = "TRAINCTL_SPAWN_ID";
// How long a thread of libgomp spins at a barrier before it sleeps. Its own choice is so long that, where
// other programs want the cores too, the one that is waited for is kept from them: on two cores with two busy
// neighbours steps took seven times as long as alone, against twice with this; alone there is no difference.
constexpr char kSpinCount[] = "GOMP_SPINCOUNT=4000";

constexpr const char* kOwnNames[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", kSpawnIdName};

absl::StatusOr<std::string> MakeMarker() {
  char bytes[16];
  if (::getrandom(bytes, sizeof(bytes), 0) != static_cast<ssize_t>(sizeof(bytes))) {
    return ErrnoError("read", "the kernel's random numbers", errno);
  }
  return absl::StrCat(kSpawnIdName, "=", absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes))));
}

// This process's environment, overridden by launch.env, without the names set per worker.
std::vector<std::string> WorkerEnvironment(const std::map<std::string, std::string>& env,
                                           const std::string& marker) {
  std::vector<std::string> entries = {marker};
  for (std::string& entry : CurrentEnvironment()) {
    const std::string name(absl::string_view(entry).substr(0, entry.find('=')));
    bool own = env.contains(name);
    for (const char* own_name : kOwnNames) own = own || name == own_name;
    if (!own) entries.push_back(std::move(entry));
  }
  for (const auto& [name, value] : env) entries.push_back(absl::StrCat(name, "=", value));
  const bool says_how_to_wait = absl::c_any_of(entries, [](const std::string& entry) {
    return absl::StartsWith(entry, "GOMP_SPINCOUNT=") || absl::StartsWith(entry, "OMP_WAIT_POLICY=");
  });
  if (!says_how_to_wait) entries.emplace_back(kSpinCount);
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
    const FailureFacts facts{result.failure.rank, result.failure.step, job.checkpoint_step, result.exit_code};
    RestartDecision decision = DecideRestart(facts, previous, job.num_restarts, job.options.max_restarts,
                                             job.stop != rendezvous::StopMode::kNone);
    if (decision.restart && job.options.check_restart) {
      const absl::Status fit = job.options.check_restart();
      if (!fit.ok()) decision = {false, absl::StrCat("not restarted: ", fit.message())};
    }
    const std::string place = facts.step >= 0 ? absl::StrCat(" at step ", facts.step) : "";
    const std::string what =
        facts.rank < 0 ? result.failure.message
                       : absl::StrCat("rank ", facts.rank, " failed", place, ": ", result.failure.message);
    run::JournalEvent exit_event{run::EventKind::kWorkerExit};
    exit_event.generation = result.generation;
    exit_event.rank = facts.rank;
    exit_event.step = facts.step;
    exit_event.message = result.failure.message;
    TRAINCTL_RETURN_IF_ERROR(job.journal.Append(std::move(exit_event)));
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
    TRAINCTL_RETURN_IF_ERROR(job.journal.Append(std::move(restart_event)));
    ++job.num_restarts;
    previous = facts;
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
                                     name == kSpawnIdName ? "" : "; set cluster.threads_per_worker instead"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<JobOutcome> RunJob(const JobOptions& options) {
  TRAINCTL_RETURN_IF_ERROR(CheckOptions(options));
  const RealClock real_clock;
  const Clock& clock = options.clock != nullptr ? *options.clock : real_clock;
  run::RunFolder& run = *options.run;
  TRAINCTL_RETURN_IF_ERROR(run.Lock());
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunState state, run.ReadState());
  TRAINCTL_ASSIGN_OR_RETURN(run::Journal journal, run::Journal::Open(run.journal_path(), &clock));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int> cores, AllowedCores());
  TRAINCTL_ASSIGN_OR_RETURN(const std::string marker, MakeMarker());

  TRAINCTL_ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install());
  ProcessTree tree(marker);
  TRAINCTL_ASSIGN_OR_RETURN(const Warden warden, Warden::Start(marker, run.lock_fd()));
  tree.AddOwn(warden.pid());

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
  TRAINCTL_RETURN_IF_ERROR(journal.Append(std::move(launch)));

  absl::StatusOr<JobOutcome> outcome = absl::InternalError("");
  {
    Console console(options.observer);
    JobContext job{options, clock, journal, *service, console, tree, signals,
                   {},      {},    "",      0,        -1,      0,    rendezvous::StopMode::kNone};
    job.shares = DivideCores(cores, options.num_workers, options.threads_per_worker);
    job.env = WorkerEnvironment(options.env, marker);
    job.socket_path = service_options.socket_path;
    job.checkpoint_step = run.NewestCheckpointStep();
    outcome = RunAttempts(job);
  }
  run.RemoveSocket(service_options.socket_path);
  run::JournalEvent end{run::EventKind::kEnd};
  end.status = outcome.ok() ? StatusOf(outcome->kind) : run::RunStatus::kFailed;
  end.message = outcome.ok() ? outcome->message : std::string(outcome.status().message());
  end.step = outcome.ok() ? outcome->step : -1;
  const absl::Status written = journal.Append(std::move(end));
  if (outcome.ok() && !written.ok()) return written;
  return outcome;
}

}  // namespace trainctl::launcher
