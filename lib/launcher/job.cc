#include "launcher/job.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_limit.h"
#include "base/files.h"
#include "base/lock_owner.h"
#include "base/network.h"
#include "base/secret_file.h"
#include "launcher/agent_starter.h"
#include "launcher/cpu_layout.h"
#include "launcher/job_runner.h"
#include "launcher/listen_addresses.h"
#include "launcher/worker_contract.h"
#include "launcher/worker_environment.h"
#include "rendezvous/restart_policy.h"

namespace trainctl::launcher {
namespace {

absl::Status CheckOptions(const JobOptions& options) {
  TRAINCTL_CHECK(options.run != nullptr && options.rendezvous != nullptr);
  if (options.num_workers < 1)
    return UsageError(absl::StrCat("a job needs at least one worker, not ", options.num_workers));
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

// Where the nodes reach this machine.
absl::StatusOr<std::vector<std::string>> AddressesFor(const RemoteNodes& remote) {
  const std::string& stated = remote.interface != "auto" ? remote.interface : remote.address;
  if (!stated.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(std::string address, AddressOfInterface(stated));
    return std::vector<std::string>{std::move(address)};
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<NetworkInterface> interfaces, ListInterfaces());
  std::vector<RouteToNode> routes;
  for (const RemoteNodes::Node& node : remote.nodes) {
    const bool is_of_ssh = remote.starter == RemoteNodes::Starter::kSsh;
    const std::string host = is_of_ssh ? SshHostName(remote.starter_options, node.host) : node.host;
    routes.push_back({node.name, LocalAddressTowards(host.empty() ? node.name : host, 1)});
  }
  return ListenAddresses(routes, interfaces);
}

// A file that only this launch's run folder has, wherever a node sees it.
absl::StatusOr<rendezvous::NetworkOptions> NetworkOptionsOf(const JobOptions& options,
                                                            const std::string& job) {
  const RemoteNodes& remote = *options.remote;
  rendezvous::NetworkOptions network;
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(options.run->path() + "/launch-id", job));
  for (const RemoteNodes::Node& node : remote.nodes) network.nodes.push_back(node.name);
  TRAINCTL_ASSIGN_OR_RETURN(network.addresses, AddressesFor(remote));
  network.port = remote.port;
  network.secret_path = remote.secret_path;
  rendezvous::NodeSetup& setup = network.setup;
  setup.run_dir = options.run->path();
  setup.proof = job;
  setup.num_workers = options.num_workers;
  setup.threads_per_worker = options.threads_per_worker;
  setup.worker_args = options.worker_args;
  setup.env = options.env;
  for (const std::string& name : remote.pass_env) {
    if (const char* value = std::getenv(name.c_str()); value != nullptr) setup.env.try_emplace(name, value);
  }
  setup.stop_timeout = options.stop_timeout;
  setup.heartbeat_interval = rendezvous::Timeouts::FromDetect(options.detect_timeout).heartbeat_interval;
  setup.detect_timeout = options.detect_timeout;
  setup.log_limit_bytes = options.log_limit_bytes;
  setup.coordinator_timeout = remote.coordinator_timeout;
  setup.interface = remote.interface;
  return network;
}

struct Rendezvous {
  rendezvous::ServiceOptions options;
  std::unique_ptr<rendezvous::RendezvousService> service;
};
absl::StatusOr<Rendezvous> StartRendezvous(const JobOptions& options, const run::RunState& before) {
  run::RunFolder& run = *options.run;
  run.RemoveStaleSockets(before.socket);
  Rendezvous started;
  TRAINCTL_ASSIGN_OR_RETURN(started.options.socket_path, run.MakeSocketPath());
  started.options.token_path = run.token_path();
  started.options.folder = {run.path(), run.id()};
  started.options.timeouts = rendezvous::Timeouts::FromDetect(options.detect_timeout);
  TRAINCTL_ASSIGN_OR_RETURN(started.options.job, RandomHex(16));
  started.options.term = run.term();
  started.options.last_generation = before.generation;
  if (options.remote) {
    TRAINCTL_ASSIGN_OR_RETURN(started.options.network, NetworkOptionsOf(options, started.options.job));
    started.options.timeouts.relay = started.options.timeouts.RelayOfAgents();
  }
  TRAINCTL_ASSIGN_OR_RETURN(started.service, options.rendezvous(started.options));
  return started;
}

run::JournalEvent LaunchEvent(const JobOptions& options) {
  run::JournalEvent launch{run::EventKind::kLaunch};
  launch.world_size = options.num_workers;
  launch.pid = ::getpid();
  launch.host = HostName();
  launch.metrics = options.metrics;
  if (!options.remote) return launch;
  launch.world_size *= static_cast<int>(options.remote->nodes.size());
  for (const RemoteNodes::Node& node : options.remote->nodes) launch.nodes.push_back(node.name);
  return launch;
}

run::JournalEvent EndEvent(const absl::StatusOr<JobOutcome>& outcome) {
  run::JournalEvent end{run::EventKind::kEnd};
  end.status = outcome.ok() ? StatusOf(outcome->kind) : run::RunStatus::kFailed;
  end.message = outcome.ok() ? outcome->message : std::string(outcome.status().message());
  end.launch_exit_code = static_cast<int>(LaunchExitCode(outcome));
  if (outcome.ok() && outcome->kind == JobOutcome::Kind::kFailed) {
    end.rank = outcome->rank;
    end.step = outcome->step;
    end.exit_code = outcome->worker_exit_code;
  }
  return end;
}

absl::StatusOr<JobRunner::LocalNode> LocalNodeOf(const JobOptions& options, const std::string& socket_path,
                                                 rendezvous::RendezvousService& service) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int> cores, AllowedCores());
  JobRunner::LocalNode local;
  local.slots = OfferSlots(kLocalNode, cores, options.num_workers, options.threads_per_worker);
  local.start.run = options.run;
  local.start.node = kLocalNode;
  local.start.program = options.worker_program;
  local.start.files = ProgramFiles::Open(options.worker_program, options.env);
  local.start.args = options.worker_args;
  local.start.env = WorkerEnvironment(options.env);
  local.start.socket_path = socket_path;
  local.start.log_limit_bytes = options.log_limit_bytes;
  local.start.admit = [&service](const rendezvous::Slot& slot) { return service.AdmitWorker(slot); };
  // The folder is one only where the path was too long for the run's own, which is not empty.
  local.start.owner.leftovers = {socket_path, socket_path.substr(0, socket_path.rfind('/'))};
  return local;
}

// An event that is in the journal before anything else happens.
absl::Status RecordNow(const JobOptions& options, const Clock& clock, run::Journal& journal,
                       run::JournalEvent event) {
  event.time = clock.Now();
  for (JobWatcher* watcher : options.watchers) watcher->OnEvent(event);
  return journal.Append(std::move(event));
}

}  // namespace

ExitCode LaunchExitCode(const absl::StatusOr<JobOutcome>& outcome) {
  if (!outcome.ok()) return ExitCodeFor(outcome.status());
  if (outcome->kind == JobOutcome::Kind::kFailed && outcome->worker_exit_code.has_value()) {
    const std::optional<ExitCode> code = rendezvous::IncurableCode(*outcome->worker_exit_code);
    if (code.has_value()) return *code;
  }
  return outcome->exit_code();
}

absl::StatusOr<JobOutcome> RunJob(const JobOptions& options) {
  TRAINCTL_RETURN_IF_ERROR(CheckOptions(options));
  static const RealClock real_clock;  // of what a disk that stands still keeps waiting, too
  const Clock& clock = options.clock != nullptr ? *options.clock : real_clock;
  run::RunFolder& run = *options.run;
  TRAINCTL_RETURN_IF_ERROR(run.Lock());
  TRAINCTL_RETURN_IF_ERROR(run.BeginTerm());
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunState state, run.ReadState());
  TRAINCTL_ASSIGN_OR_RETURN(run::Journal opened, run::Journal::Open(run.journal_path(), &clock));
  const auto journal = std::make_shared<run::Journal>(std::move(opened));

  std::optional<SignalPipe> own_signals;
  if (options.signals == nullptr) {
    TRAINCTL_ASSIGN_OR_RETURN(SignalPipe installed, SignalPipe::Install());
    own_signals.emplace(std::move(installed));
  }
  SignalPipe& signals = options.signals != nullptr ? *options.signals : *own_signals;

  if (options.remote) RaiseFileLimit();  // each node's agent has a connection
  absl::StatusOr<Rendezvous> started = StartRendezvous(options, state);
  run::JournalEvent launch = LaunchEvent(options);
  if (started.ok()) {
    launch.socket = started->options.socket_path;
  }
  // One that comes to nothing too: whoever tries again counts it.
  TRAINCTL_RETURN_IF_ERROR(RecordNow(options, clock, *journal, std::move(launch)));
  if (!started.ok()) {
    TRAINCTL_RETURN_IF_ERROR(RecordNow(options, clock, *journal, EndEvent(started.status())));
    return started.status();
  }
  const std::string& socket_path = started->options.socket_path;

  DiskQueue disk;
  Console console(options.observer);
  std::optional<JobRunner::LocalNode> local;
  if (!options.remote) {
    TRAINCTL_ASSIGN_OR_RETURN(local, LocalNodeOf(options, socket_path, *started->service));
  }
  JobRunner runner({options, clock, journal, disk, *started->service, console, signals}, std::move(local));
  absl::StatusOr<JobOutcome> outcome = runner.Run();
  run.RemoveSocket(socket_path);
  runner.Record(EndEvent(outcome));
  if (!disk.Wait(options.disk_patience)) {
    console.Message(absl::StrCat("the disk that holds ", run.path(),
                                 " does not respond, so the outcome of this launch is not in the journal"));
  }
  runner.ShowDiskErrors();
  return outcome;
}

}  // namespace trainctl::launcher
