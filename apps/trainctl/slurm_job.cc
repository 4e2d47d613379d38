#include "apps/trainctl/slurm_job.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "apps/trainctl/worker_program.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/folder_paths.h"
#include "base/run_program.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "run/journal.h"

namespace trainctl::cli {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(2);   // with a controller that is busy
constexpr absl::Duration kToLookAt = absl::Seconds(10);  // where nothing depends on the answer

std::string JobPath(const run::RunFolder& run) { return run.path() + "/batch-job.json"; }
std::string ScriptPath(const run::RunFolder& run) { return run.path() + "/slurm-job.sh"; }

// What one of Slurm's programs prints. EnvironmentError with its own words.
absl::StatusOr<std::string> AskSlurm(std::vector<std::string> command, absl::Duration patience = kPatience) {
  const std::string name = command[0];
  command[0] = FindInPath(name);
  if (command[0].empty()) return EnvironmentError(absl::StrCat(name, " (part of Slurm) is not in PATH"));
  TRAINCTL_ASSIGN_OR_RETURN(const ProgramEnd end, RunProgram(command, patience));
  if (end.is_late) {
    return EnvironmentError(absl::StrCat(name, " did not finish within ", absl::FormatDuration(patience)));
  }
  if (end.exit.Success()) return end.output;
  return EnvironmentError(
      absl::StrCat(name, " ", end.exit.Describe(), end.output.empty() ? "" : absl::StrCat(": ", end.output)));
}

absl::Status WriteJob(const run::RunFolder& run, const std::string& id) {
  return WriteFileAtomic(JobPath(run), cluster::FormatJobRecord(id, run.path()));
}

std::optional<cluster::SlurmJobState> StateOf(const std::string& id, absl::Duration patience) {
  const auto shown = AskSlurm({"scontrol", "--oneliner", "show", "job", id}, patience);
  return shown.ok() ? cluster::ParseJobState(*shown) : std::nullopt;
}

// Whether an end of this kind is one that another job can go on after.
bool GoesOn(const std::string& id, const absl::StatusOr<launcher::JobOutcome>& ended) {
  using Kind = launcher::JobOutcome::Kind;
  if (!ended.ok()) return ExitCodeFor(ended.status()) == ExitCode::kEnvironment;  // a node did not come back
  if (ended->kind != Kind::kStoppedResumable) return false;
  if (cluster::IsWarning(ended->stop_reason)) return true;
  // A job that makes room and one that is cancelled get the same signal.
  if (!absl::EndsWith(ended->stop_reason, "SIGTERM")) return false;
  const auto state = StateOf(id, kPatience);
  return state.has_value() && state->makes_room;
}

absl::StatusOr<std::string> SubmitScript(const run::RunFolder& run, const std::vector<std::string>& options) {
  std::vector<std::string> command = {"sbatch", "--parsable"};
  command.insert(command.end(), options.begin(), options.end());
  command.push_back(ScriptPath(run));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string printed, AskSlurm(std::move(command)));
  TRAINCTL_ASSIGN_OR_RETURN(std::string id, cluster::ParseSubmitted(printed));
  TRAINCTL_RETURN_IF_ERROR(WriteJob(run, id));
  return id;
}

}  // namespace

bool IsSubmitted(const recipe::Recipe& recipe) {
  if (recipe.launch.backend != "slurm") return false;
  const auto job = cluster::FindBatchJob(std::getenv);
  return job.ok() && !job->has_value();
}

absl::Status CheckCanSubmit() {
  if (!FindInPath("sbatch").empty()) return absl::OkStatus();
  return EnvironmentError(
      "launch.backend = \"slurm\" needs either a Slurm allocation or sbatch to submit a job, and neither is "
      "available here; run this on a login node");
}

absl::StatusOr<std::string> MakeSlurmScript(const recipe::Recipe& recipe, const PrintedLaunch& launch) {
  if (launch.run_dir.empty()) {
    return UsageError("a job needs the run folder; print its script with --run-dir RUN");
  }
  cluster::SlurmJob job;
  job.config = recipe.launch.slurm;
  job.name = recipe.run.name;
  job.nodes = recipe.cluster.nodes;
  if (recipe.cluster.device != "cpu") job.devices_per_node = recipe.cluster.devices_per_node;
  TRAINCTL_ASSIGN_OR_RETURN(job.folder, AbsolutePath("."));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string run, AbsolutePath(launch.run_dir));
  job.output = absl::StrCat(absl::StrReplaceAll(run, {{"%", "%%"}}), "/slurm-%j.out");
  TRAINCTL_ASSIGN_OR_RETURN(std::string program, OwnProgram());
  job.command.push_back(std::move(program));
  if (launch.recipe.empty()) {
    job.command.insert(job.command.end(), {"resume", run});
  } else {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string recipe_path, AbsolutePath(launch.recipe));
    job.command.insert(job.command.end(), {"launch", recipe_path, "--run-dir", run, "--or-resume"});
  }
  for (const std::string& set : launch.sets) job.command.insert(job.command.end(), {"--set", set});
  if (launch.trust_folder) job.command.push_back("--trust-folder");
  if (launch.stop_after >= 0) {
    job.command.insert(job.command.end(), {"--stop-after", absl::StrCat(launch.stop_after)});
  }
  return cluster::SlurmScript(job);
}

absl::StatusOr<std::string> SubmitRun(run::RunFolder& run, const recipe::Recipe& recipe,
                                      const PrintedLaunch& launch) {
  const std::optional<RunJob> before = FindRunJob(run);
  if (before && before->state && before->state->IsAlive()) {
    const std::string path = ShellQuote(run.path());
    return UsageError(absl::StrCat(run.path(), " is already Slurm job ", before->id, " (",
                                   before->state->state, "). See: trainctl status ", path,
                                   ". To end it: trainctl stop ", path));
  }
  PrintedLaunch named = launch;
  named.run_dir = run.path();
  TRAINCTL_ASSIGN_OR_RETURN(const std::string script, MakeSlurmScript(recipe, named));
  TRAINCTL_RETURN_IF_ERROR(run.Lock());
  // Without one it is no run that `status` and `stop` can name.
  const RealClock clock;
  TRAINCTL_RETURN_IF_ERROR(run::Journal::Open(run.journal_path(), &clock).status());
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(ScriptPath(run), script));
  run.Unlock();  // the job may start before sbatch has ended
  return SubmitScript(run, {});
}

std::optional<RunJob> FindRunJob(const run::RunFolder& run, bool asks) {
  const absl::StatusOr<std::string> text = ReadFile(JobPath(run));
  if (!text.ok()) return std::nullopt;
  const std::optional<std::string> number = cluster::FindRecordedJob(*text, run.path());
  if (!number) return std::nullopt;
  return RunJob{*number, asks ? StateOf(*number, kToLookAt) : std::nullopt};
}

std::string SlurmTopology() { return AskSlurm({"scontrol", "show", "topology"}, kToLookAt).value_or(""); }

std::map<std::string, std::string> SlurmAddresses(const std::string& node_list) {
  const auto shown = AskSlurm({"scontrol", "--oneliner", "show", "node", node_list}, kToLookAt);
  return cluster::ParseNodeAddresses(shown.value_or(""));
}

absl::Status CancelJob(const std::string& id) { return AskSlurm({"scancel", id}).status(); }

std::string GoOnInNextJob(const run::RunFolder& run, const recipe::Recipe& recipe, int64_t launches_before,
                          const absl::StatusOr<launcher::JobOutcome>& ended) {
  const std::optional<std::string> id = cluster::FindSubmittedJob(std::getenv);
  if (!id || !GoesOn(*id, ended)) return "";
  const absl::StatusOr<run::RunState> state = run.ReadState();
  const std::string job = absl::StrCat("Slurm job ", *id);
  // Jobs that nobody counts would follow each other for ever.
  if (!state.ok() || state->num_launches <= launches_before) {
    return absl::StrCat(job, " is not requeued: ", run.journal_path(),
                        " does not record this launch; once the error is fixed, continue with: sbatch ",
                        ShellQuote(ScriptPath(run)));
  }
  const int64_t in_vain = state->launches_without_checkpoint;
  if (in_vain > recipe.launch.max_restarts) {
    return absl::StrCat(job, " is not requeued: the last ", in_vain,
                        " launches saved no checkpoint (launch.max_restarts is ", recipe.launch.max_restarts,
                        "); raise its time limit, or save more often");
  }
  const absl::Status requeued = AskSlurm({"scontrol", "requeue", *id}).status();
  if (requeued.ok()) return absl::StrCat(job, " is requeued");
  const absl::StatusOr<std::string> next = SubmitScript(run, {absl::StrCat("--dependency=afterany:", *id)});
  if (next.ok()) return absl::StrCat("job ", *next, " continues (", requeued.message(), ")");
  return absl::StrCat(job, " cannot be requeued (", requeued.message(),
                      "), and submitting a new job failed (", next.status().message(),
                      "); continue with: sbatch ", ShellQuote(ScriptPath(run)));
}

}  // namespace trainctl::cli
