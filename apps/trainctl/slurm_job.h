// launch.backend = "slurm" outside of an allocation: a run is submitted as a job, which goes back into the
// queue when its time is up. Asks Slurm by its own programs.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "apps/trainctl/printed_launch.h"
#include "cluster/slurm_job.h"
#include "launcher/job.h"
#include "recipe/recipe.h"
#include "run/run_folder.h"

namespace trainctl::cli {

// Whether a launch of this recipe is one that Slurm makes later, in a job.
bool IsSubmitted(const recipe::Recipe& recipe);

// EnvironmentError: this machine cannot submit jobs.
absl::Status CheckCanSubmit();

// The script of the job. UsageError: a job could not run this command.
absl::StatusOr<std::string> MakeSlurmScript(const recipe::Recipe& recipe, const PrintedLaunch& launch);

// Writes the script into the run's folder and submits it; the number of the job. UsageError: the run is in
// the queue already. EnvironmentError: Slurm does not take it; a launch works on the run.
absl::StatusOr<std::string> SubmitRun(run::RunFolder& run, const recipe::Recipe& recipe,
                                      const PrintedLaunch& launch);

// The last job that was submitted for a run.
struct RunJob {
  std::string id;
  std::optional<cluster::SlurmJobState> state;  // nullopt: not known any more, or Slurm cannot be asked
};
// `asks`: Slurm for its state.
std::optional<RunJob> FindRunJob(const run::RunFolder& run, bool asks = true);
// What it prints of switches, for cluster::OrderBySwitch; empty where it knows none, or does not answer.
std::string SlurmTopology();
// By which address Slurm reaches each node of `node_list` (as Slurm writes it); what it does not tell is not
// in it.
std::map<std::string, std::string> SlurmAddresses(const std::string& node_list);
// Takes a job out of the queue, or ends it. EnvironmentError: Slurm refuses.
absl::Status CancelJob(const std::string& id);

// At the end of a launch: if it is that of a submitted job and was ended by Slurm or for lack of a node, the
// job goes on later, as long as the launches in vain are counted. What it does about it, for people; empty:
// nothing. `launches_before`: how many the journal knew before this one.
std::string GoOnInNextJob(const run::RunFolder& run, const recipe::Recipe& recipe, int64_t launches_before,
                          const absl::StatusOr<launcher::JobOutcome>& ended);

}  // namespace trainctl::cli
