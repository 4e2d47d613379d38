// Runs a job, on this machine or over the agents of others: starts the workers, supervises them, restarts
// them after a failure, and ends them, all of them, with everything that they started. See worker_contract.h
// for what a worker program has to do.
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
#include "launcher/signal_pipe.h"
#include "rendezvous/service.h"
#include "rendezvous/supervisor.h"
#include "run/run_folder.h"

namespace trainctl::launcher {

// The machines of a job that does not run here alone.
struct RemoteNodes {
  enum class Starter {
    kSsh,    // a command for each node
    kSlurm,  // a job step of the allocation that this process is in
    kPods,   // the pods of the job that this process is in start them; here, where the first node is, we do
  };
  struct Node {
    std::string name;  // unique: of its members
    std::string host;  // where it is reached; for ssh "name" or "user@name"; empty: by its name
  };
  Starter starter = Starter::kSsh;
  std::vector<Node> nodes;                   // in the order of the ranks
  std::vector<std::string> starter_options;  // of ssh, or of srun
  std::string program;                       // trainctl on those machines
  std::string interface = "auto";            // launch.interface
  std::vector<std::string> pass_env;         // variables of this process that workers get, if they are set
  absl::Duration coordinator_timeout = absl::Seconds(60);
  // Of pods: this one's address, where their agents expect the launcher, and the file of the secret that lets
  // them in.
  std::string address;
  int port = 0;
  std::string secret_path;
  absl::Duration node_timeout = rendezvous::SupervisorOptions().node_timeout;
};

struct JobOptions {
  run::RunFolder* run = nullptr;
  rendezvous::RendezvousFactory rendezvous;

  // What to start. The flags of the worker contract come before worker_args.
  std::string worker_program;  // a path
  std::vector<std::string> worker_args;
  int num_workers = 1;                     // per node
  std::optional<RemoteNodes> remote;       // nullopt: this machine is the only node
  std::optional<int> threads_per_worker;   // default: allowed cores / workers
  std::map<std::string, std::string> env;  // launch.env
  rendezvous::NodeNeeds node_needs;        // of machines that are not this one

  int64_t max_restarts = 3;  // without a new checkpoint in between
  // Asked before a restart; what it says is wrong ends the job instead. May be empty.
  std::function<absl::Status()> check_restart;
  absl::Duration detect_timeout = absl::Seconds(10);
  absl::Duration stop_timeout = absl::Seconds(30);  // from SIGTERM to SIGKILL
  // How long a rank may stand still at most (watchdog.h), and keep the others waiting.
  absl::Duration hang_timeout = absl::Minutes(10);
  absl::Duration collective_timeout = absl::Minutes(10);

  int64_t log_limit_bytes = int64_t{256} << 20;  // of a worker's log (WorkerLog::Open)

  absl::Duration disk_patience = absl::Seconds(10);  // with a disk that stands still, at the end

  std::shared_ptr<JobObserver> observer;  // may be null
  SignalPipe* signals = nullptr;          // null: one is installed while the job runs
  // Null: the real one. Deadlines of this process follow it, those of the rendezvous do not.
  const Clock* clock = nullptr;
};

using rendezvous::JobOutcome;

// Blocks until the job has ended, and no process of it is left. Must be called from a thread that
// lives as long as the process (the main thread): the workers die with it. SIGINT, SIGTERM,
// SIGHUP, SIGUSR1 and SIGUSR2 ask the workers to save and stop; a second SIGINT stops without saving, a third
// one does not even wait for the workers.
//
// An error means that the job could not be run (the run folder is in use, the program cannot be
// executed, launch.env is wrong); a failed worker is an outcome.
absl::StatusOr<JobOutcome> RunJob(const JobOptions& options);

}  // namespace trainctl::launcher
