// A Slurm job that runs a launch: generates the script to submit and parses Slurm's reports about the job.
// The job runs `trainctl launch --or-resume` on its first node. If its time is almost up or it is preempted,
// it saves and requeues itself. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cluster/batch_job.h"

namespace trainctl::cluster {

// The settings in launch.slurm, for `launch.backend = "slurm"`.
struct SlurmConfig {
  // Options for the sbatch command that submits the job.
  std::vector<std::string> submit_options;
  // Options for the srun command that starts an agent on each node.
  std::vector<std::string> step_options;
  // How long before the end of the job Slurm warns it to save.
  absl::Duration save_before = absl::Minutes(5);
};

// Returns UsageError for a text that is not an option and for an option that the job sets itself.
absl::Status CheckSubmitOptions(const std::vector<std::string>& options);

// Whether any option of sbatch or srun selects a node's devices (for example "--gres=gpu:8").
bool NamesDevices(const std::vector<std::string>& options);

struct SlurmJob {
  SlurmConfig config;  // valid settings
  std::string name;
  int64_t nodes = 1;
  int64_t devices_per_node = 0;  // number of GPUs per node; 0 for none
  // Absolute path of the working directory of the command.
  std::string folder;
  // Absolute path of the output file, in which %j stands for the job's number.
  std::string output;
  std::vector<std::string> command;  // trainctl and its arguments
};

// Returns a script for sbatch. Returns UsageError for a path that cannot be written in an #SBATCH directive.
absl::StatusOr<std::string> SlurmScript(const SlurmJob& job);

// How long a submitted job waits for a lost node. The wait is short because the node may never return and
// Slurm can provide another one.
inline constexpr absl::Duration kSubmittedNodeTimeout = absl::Seconds(30);

// Environment variable that is "1" in a submitted job.
inline constexpr char kSubmittedVariable[] = "TRAINCTL_SUBMITTED";

// Returns the number of the submitted job that this process runs in, if any. Returns nullopt in a job that
// runs the user's own script, because that script decides what happens after a save.
std::optional<std::string> FindSubmittedJob(const Environment& environment);

// Whether this process runs in a job that Slurm has requeued, in which case the job's earlier processes are
// gone.
bool IsRequeued(const Environment& environment);

// Parses the job number in the output of `sbatch --parsable`. Returns EnvironmentError if there is none.
absl::StatusOr<std::string> ParseSubmitted(absl::string_view output);

// Formats a run folder's batch-job.json, which records the job submitted for the run in `folder`. In a copy
// of the folder, the file still names the original folder, to which the job belongs.
std::string FormatJobRecord(absl::string_view id, absl::string_view folder);
// Returns the job number that `text` records for `folder`, or nullopt if the text belongs to another folder
// (of which this one is a copy) or is not a job record.
std::optional<std::string> FindRecordedJob(absl::string_view text, absl::string_view folder);

// A job's state according to Slurm.
struct SlurmJobState {
  std::string state;        // Slurm's name, such as "PENDING" or "RUNNING"
  std::string reason;       // why the job is pending, such as "Resources"; may be empty
  bool makes_room = false;  // whether the job is being preempted

  bool IsWaiting() const { return state == "PENDING" || state == "REQUEUED" || state == "REQUEUE_HOLD"; }
  bool WillLaunch() const { return IsWaiting() || state == "CONFIGURING" || state == "RUNNING"; }
  // Whether the job holds nodes or is going to.
  bool IsAlive() const;
};
// Parses a line of `scontrol --oneliner show job`. Returns nullopt if it does not describe a job.
std::optional<SlurmJobState> ParseJobState(absl::string_view output);

// Parses the address of each node from `scontrol --oneliner show node`. Use these addresses to reach nodes,
// because other services may be unable to resolve Slurm's node names.
std::map<std::string, std::string> ParseNodeAddresses(absl::string_view output);

// Whether a save requested for this reason is due to Slurm's warning, after which the job resumes without
// user action. `reason` is a signal's name, preceded by "NODE: " if an agent received the signal.
bool IsWarning(absl::string_view reason);

}  // namespace trainctl::cluster
