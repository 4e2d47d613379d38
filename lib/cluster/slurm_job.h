// A job of Slurm that runs a launch: the script that is submitted, and what Slurm says of it. The job runs
// `trainctl launch --or-resume` on its first node. When it is warned that its time is up, or makes room for
// another, it saves and goes back into the queue. Pure; thread safe.
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

// What `launch.backend = "slurm"` reads: launch.slurm.
struct SlurmConfig {
  std::vector<std::string> submit_options;        // of the sbatch that submits the job
  std::vector<std::string> step_options;          // of the srun that starts an agent on each node
  absl::Duration save_before = absl::Minutes(5);  // the end of the job's time
};

// UsageError: no option, or one that the job needs as it is.
absl::Status CheckSubmitOptions(const std::vector<std::string>& options);

struct SlurmJob {
  SlurmConfig config;  // checked
  std::string name;
  int64_t nodes = 1;
  int64_t devices_per_node = 0;      // GPUs; 0: none
  std::string folder;                // where the command is given; absolute
  std::string output;                // a file, in which %j is the job's number; absolute
  std::vector<std::string> command;  // trainctl and its arguments
};

// A script for sbatch. UsageError: a path that its directives cannot hold.
absl::StatusOr<std::string> SlurmScript(const SlurmJob& job);

// How long such a job waits for a node that it has lost. Slurm has others: it is not worth keeping the rest
// waiting for one that does not come back.
inline constexpr absl::Duration kSubmittedNodeTimeout = absl::Seconds(30);

// Is set to "1" in such a job.
inline constexpr char kSubmittedVariable[] = "TRAINCTL_SUBMITTED";

// The number of the job of ours that this process is in. A script that somebody wrote is none: it decides by
// itself what follows a save.
std::optional<std::string> FindSubmittedJob(const Environment& environment);

// Whether this process is in one that Slurm has put back into the queue: its former processes are gone.
bool IsRequeued(const Environment& environment);

// The number of the job, of what `sbatch --parsable` prints. EnvironmentError: there is none in it.
absl::StatusOr<std::string> ParseSubmitted(absl::string_view output);

// batch-job.json of a run folder: the job that was submitted for the run in `folder`. A copy of the folder
// still names the folder of the original, whose job it is.
std::string FormatJobRecord(absl::string_view id, absl::string_view folder);
// The number of the job if `text` records one for `folder`; empty for a copy, and for any other text.
std::optional<std::string> FindRecordedJob(absl::string_view text, absl::string_view folder);

// What Slurm knows of a job.
struct SlurmJobState {
  std::string state;        // "PENDING", "RUNNING"
  std::string reason;       // why it waits: "Resources", "BeginTime"; may be empty
  bool makes_room = false;  // it is being preempted

  bool IsWaiting() const { return state == "PENDING" || state == "REQUEUED" || state == "REQUEUE_HOLD"; }
  bool WillLaunch() const { return IsWaiting() || state == "CONFIGURING" || state == "RUNNING"; }
  // It holds nodes, or will.
  bool IsAlive() const;
};
// Of a line of `scontrol --oneliner show job`; nullopt: it shows none.
std::optional<SlurmJobState> ParseJobState(absl::string_view output);

// By which address Slurm reaches each node, of `scontrol --oneliner show node`. Its names need not be known
// to anybody else.
std::map<std::string, std::string> ParseNodeAddresses(absl::string_view output);

// Whether a save that `reason` has asked for (a signal's name, behind "NODE: " where an agent got it) is one
// after which the job goes on by itself.
bool IsWarning(absl::string_view reason);

}  // namespace trainctl::cluster
