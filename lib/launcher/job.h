// Runs a job on this machine, or on others through agents. Starts the workers, supervises them, restarts them
// after a failure, and finally ends them and every process they started. worker_contract.h defines the
// requirements for a worker program.
//
//   launcher::JobOptions options;
//   options.run = &run;                       // created or opened; locked here if it is not yet
//   options.rendezvous = &rpc::StartServer;
//   options.worker_program = ".../trainctl-worker";
//   options.num_workers = 2;
//   TRAINCTL_ASSIGN_OR_RETURN(const auto outcome, launcher::RunJob(options));
//   return outcome.exit_code();
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "launcher/console.h"
#include "launcher/job_watcher.h"
#include "launcher/signal_pipe.h"
#include "rendezvous/service.h"
#include "rendezvous/supervisor.h"
#include "run/run_folder.h"

namespace trainctl::launcher {

// The machines of a job that does not run only on this one.
struct RemoteNodes {
  enum class Starter {
    kSsh,    // one ssh command per node
    kSlurm,  // one job step in this process's Slurm allocation
    // The pods of this process's Kubernetes job. This pod is the first node and starts its own agent.
    kPods,
  };
  struct Node {
    std::string name;  // unique within the job; also part of its members' names
    // Address of the node; "name" or "user@name" for ssh. If empty, `name` is used.
    std::string host;
  };
  Starter starter = Starter::kSsh;
  std::vector<Node> nodes;                   // in rank order
  std::vector<std::string> starter_options;  // ssh or srun options
  std::string program;                       // path of trainctl on those machines
  std::string interface = "auto";            // launch.interface
  // Variables of this process's environment that are passed to workers if they are set.
  std::vector<std::string> pass_env;
  absl::Duration coordinator_timeout = absl::Seconds(60);
  // Used only for pods: the address and port of this pod, where the agents expect the launcher, and the file
  // with the secret that admits them.
  std::string address;
  int port = 0;
  std::string secret_path;
  absl::Duration node_timeout = rendezvous::SupervisorOptions().node_timeout;
};

struct JobOptions {
  run::RunFolder* run = nullptr;
  rendezvous::RendezvousFactory rendezvous;

  // The program to start. worker_args follow the flags of the worker contract on its command line.
  std::string worker_program;  // path of the program
  std::vector<std::string> worker_args;
  int num_workers = 1;                     // workers per node
  std::optional<RemoteNodes> remote;       // nullopt if this machine is the only node
  std::optional<int> threads_per_worker;   // default is allowed cores / workers
  std::map<std::string, std::string> env;  // launch.env
  rendezvous::NodeNeeds node_needs;        // requirements that other machines must meet

  // Maximum number of restarts without a new checkpoint in between.
  int64_t max_restarts = 3;
  // Called before a restart. If it returns an error, the job ends instead of restarting. May be null.
  std::function<absl::Status()> check_restart;
  absl::Duration detect_timeout = absl::Seconds(10);
  absl::Duration stop_timeout = absl::Seconds(30);  // time from SIGTERM to SIGKILL
  // Longest time that a rank may go without making progress (watchdog.h) and may keep other ranks waiting,
  // respectively.
  absl::Duration hang_timeout = absl::Minutes(10);
  absl::Duration collective_timeout = absl::Minutes(10);

  // Size limit of each worker's log; see WorkerLog::Open.
  int64_t log_limit_bytes = int64_t{256} << 20;

  // Time to wait for a hanging disk at the end of the job.
  absl::Duration disk_patience = absl::Seconds(10);

  std::shared_ptr<JobObserver> observer;  // may be null
  std::vector<JobWatcher*> watchers;      // must outlive the job
  std::string metrics;                    // JournalEvent::metrics of this launch
  SignalPipe* signals = nullptr;          // if null, one is installed while the job runs
  // Used for this process's deadlines, but not for those of the rendezvous. Null means the real clock.
  const Clock* clock = nullptr;
};

using rendezvous::JobOutcome;

// Returns the exit code for `trainctl launch`. If a worker's exit code identifies the cause, such as a
// damaged file or a non-finite loss, returns that code instead of the generic one for failed workers.
ExitCode LaunchExitCode(const absl::StatusOr<JobOutcome>& outcome);

// Runs a job, blocking until it has ended and all of its processes are gone. Must be called from a thread
// that lives as long as the process, such as the main thread, because the workers are killed when that thread
// exits. SIGINT, SIGTERM, SIGHUP, SIGUSR1, and SIGUSR2 ask the workers to save and stop. A second SIGINT
// stops them without saving, and a third kills them at once.
//
// Returns an error only if the job could not be run, for example because the run folder is in use, the
// program cannot be executed, or launch.env is invalid. A worker failure is not an error of this function;
// the outcome reports it.
absl::StatusOr<JobOutcome> RunJob(const JobOptions& options);

}  // namespace trainctl::launcher
