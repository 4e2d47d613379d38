// `trainctl launch` and `trainctl resume`: plan, prepare the run folder, run the workers.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "apps/trainctl/batch_checks.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/continue_from.h"
#include "apps/trainctl/detach.h"
#include "apps/trainctl/early_stop.h"
#include "apps/trainctl/failure_report.h"
#include "apps/trainctl/host_answers.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/job_access.h"
#include "apps/trainctl/job_console.h"
#include "apps/trainctl/kubernetes_job.h"
#include "apps/trainctl/launch_needs.h"
#include "apps/trainctl/machine_access.h"
#include "apps/trainctl/option_checks.h"
#include "apps/trainctl/plan_json.h"
#include "apps/trainctl/planned_job.h"
#include "apps/trainctl/remote_nodes.h"
#include "apps/trainctl/run_monitors.h"
#include "apps/trainctl/run_numbers.h"
#include "apps/trainctl/slurm_job.h"
#include "apps/trainctl/verify_plan.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/shell_quote.h"
#include "base/units.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/examine.h"
#include "cluster/host.h"
#include "cluster/kubernetes_job.h"
#include "data/batch_source.h"
#include "data/data_record.h"
#include "data/earlier_end.h"
#include "data/fingerprint.h"
#include "data/kept_documents.h"
#include "launcher/job.h"
#include "launcher/printable_text.h"
#include "optim/lr_schedule.h"
#include "plan/plan.h"
#include "plan/precision_text.h"
#include "planner/make_plan.h"
#include "recipe/derive.h"
#include "recipe/load.h"
#include "recipe/notes.h"
#include "recipe/recipe_json.h"
#include "recipe/resume.h"
#include "run/folder_trust.h"
#include "run/run_folder.h"

namespace trainctl::cli {
namespace {

struct LaunchOptions {
  std::string recipe;
  std::string run;  // resume
  std::vector<std::string> sets;
  std::string run_dir;
  int64_t stop_after = -1;
  bool dry_run = false;
  bool or_resume = false;
  bool from_scratch = false;
  bool take_over = false;
  bool detach = false;
  bool verify = false;
  bool trust_folder = false;
};

bool IsSame(const data::FileFingerprint& a, const data::FileFingerprint& b) {
  return a.path == b.path && a.size_bytes == b.size_bytes && a.xxh3 == b.xxh3 && a.sampled == b.sampled;
}

// The data of a run is frozen at its first launch: a file that changed since would silently bend it.
absl::Status CheckDataUnchanged(const run::RunFolder& run, const recipe::Recipe& recipe) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string stored, ReadFile(run.data_path()));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<data::FileFingerprint> before,
                            data::ParseDataRecord(stored, run.data_path()));
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<data::FileFingerprint> files, data::Fingerprint(recipe.data));
  if (before.size() != files.size()) {
    return BadDataError(absl::StrCat("the list of data files differs from the one in ", run.data_path()));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    // Runs of earlier builds have checksums of whole files, whatever their size.
    if (files[i].sampled && !before[i].sampled) {
      TRAINCTL_ASSIGN_OR_RETURN(files[i], data::FingerprintFile(files[i].path));
    }
    if (IsSame(before[i], files[i])) continue;
    return BadDataError(absl::StrCat(files[i].path,
                                     " has changed since the run started (different size or checksum; see ",
                                     run.data_path(), "); restore it, or launch a new run"));
  }
  return absl::OkStatus();
}

// A line on stderr; names of files have nothing in them that steers a terminal.
void Tell(const char* what, absl::string_view text) {
  std::fprintf(stderr, "%s%s\n", what, launcher::PrintableText(text, /*keep_newlines=*/true).c_str());
}

void PrintChoice(const plan::Plan& plan, const recipe::Recipe& recipe) {
  std::fprintf(
      stderr, "%s: %s parameters, %s, %s, %d x %d thread(s), predicted tensor memory %s per worker\n",
      recipe.run.name.c_str(), FormatCount(plan.num_parameters).c_str(), plan.layout.ToString().c_str(),
      plan::PrecisionText(plan.setting.types), static_cast<int>(plan.layout.mesh.world_size()),
      static_cast<int>(plan.threads_per_worker), FormatBytes(plan.predicted.peak_bytes).c_str());
  for (const std::string& note : plan.notes) Tell("  ", note);
  std::fprintf(stderr, "  step %s\n", plan.step_hash.c_str());
}

// Of a job that has failed; a disk that stands still leaves what the launcher itself has heard.
FailureReport ReportOf(const launcher::JobOutcome& outcome, const run::RunFolder& run) {
  FailureReport report;
  report.run_path = run.path();
  const absl::StatusOr<run::RunState> state = run.ReadState();
  if (state.ok() && state->status == run::RunStatus::kFailed) report = ReportFailure(run, *state);
  report.message = outcome.message;
  if (outcome.log_tail.empty()) return report;
  report.log_tail.clear();
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(outcome.log_tail, "\n"), '\n')) {
    report.log_tail.push_back(launcher::PrintableText(line));
  }
  return report;
}

void PrintOutcome(const launcher::JobOutcome& outcome, const run::RunFolder& run, const Output& output) {
  using Kind = launcher::JobOutcome::Kind;
  FailureReport failure;
  if (outcome.kind == Kind::kFailed) failure = ReportOf(outcome, run);
  const int code = static_cast<int>(launcher::LaunchExitCode(outcome));
  const std::string resume = absl::StrCat("trainctl resume ", ShellQuote(run.path()));
  const int64_t step = run.NewestCheckpointStep();  // -1: there is no checkpoint
  if (output.json) {
    Json report = {{"schema", "trainctl.launch.v1"},
                   {"run", run.path()},
                   {"exit_code", code},
                   {"restarts", outcome.num_restarts},
                   {"checkpoint_step", step >= 0 ? Json(step) : Json(nullptr)},
                   {"message", outcome.message},
                   {"failed_rank", outcome.rank >= 0 ? Json(outcome.rank) : Json(nullptr)},
                   {"last_words", failure.log_tail},
                   {"advice", failure.advice.empty() ? Json(nullptr) : Json(failure.advice)}};
    report.update(NumbersOf(run));
    std::puts(PrintableJson(report).c_str());
  }
  switch (outcome.kind) {
    case Kind::kFinished:
      if (!output.json) std::printf("finished: %s\n", launcher::PrintableText(run.path()).c_str());
      return;
    case Kind::kStoppedResumable:
      std::fprintf(stderr, "%s: %s\n",
                   step < 0 ? "stopped before the first checkpoint; start it again with"
                            : absl::StrCat("stopped after saving step ", step, "; continue with").c_str(),
                   resume.c_str());
      return;
    case Kind::kStoppedUnsaved:
      std::fprintf(stderr, "stopped immediately, %s: %s\n",
                   step < 0 ? "before the first checkpoint; start it again with"
                            : absl::StrCat("without saving; the last checkpoint is from step ", step).c_str(),
                   resume.c_str());
      return;
    case Kind::kFailed:
      Tell("trainctl: ", absl::StripSuffix(FailureText(failure), "\n"));
      return;
  }
}

// From here on a signal is the job's: it saves and stops.
absl::StatusOr<launcher::SignalPipe> TakeSignals() {
  absl::StatusOr<launcher::SignalPipe> signals = launcher::SignalPipe::Install();
  BeginLaunch();
  return signals;
}

// So that workers and later launches need not read them again. No reason not to train where it cannot be.
void KeepDocuments(const run::RunFolder& run, const recipe::Recipe& recipe, data::KeptDocuments& kept) {
  const int64_t bytes = kept.BytesToWrite();
  const std::string folder = run.documents_path();
  if (bytes == 0 && !PathExists(folder)) return;
  absl::Status status;
  const std::optional<int64_t> free_bytes = FreeBytes(run.path()).value_or(std::nullopt);
  if (bytes > 0 && free_bytes.has_value() && *free_bytes - CheckpointRoomBytes(recipe) < bytes) {
    status = EnvironmentError(absl::StrCat("the copies need ", FormatBytes(bytes),
                                           ", which would leave too little of the free ",
                                           FormatBytes(*free_bytes), " for checkpoints"));
  } else {
    status = kept.Write(folder);
  }
  if (!status.ok()) {
    Tell("note: ",
         absl::StrCat(
             "every worker will read the data files itself, because their documents cannot be cached in ",
             folder, ": ", status.message()));
  } else if (bytes > 0) {
    Tell("note: ", absl::StrCat("the documents of the data files (", FormatBytes(bytes), ") are cached in ",
                                folder, " until the run finishes"));
  }
}

// Finishes work in the run folder after a job. An error if the folder was moved or replaced under the
// workers, whatever the outcome of the job.
absl::Status TidyUp(const run::RunFolder& run, const absl::StatusOr<launcher::JobOutcome>& ended) {
  TRAINCTL_RETURN_IF_ERROR(run.CheckInPlace());
  // A save that failed has left its files. The next launch tries again if they cannot be removed.
  checkpoint::RevokeUnfinished(run.checkpoints_path()).IgnoreError();
  const bool is_finished = ended.ok() && ended->kind == launcher::JobOutcome::Kind::kFinished;
  return is_finished ? RemoveAll(run.documents_path()) : absl::OkStatus();
}

absl::StatusOr<ExitCode> RunWorkers(run::RunFolder& run, const recipe::Recipe& recipe, const plan::Plan& plan,
                                    launcher::SignalPipe& signals, RunMonitors& monitors,
                                    const LaunchOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(launcher::JobOptions job, PlannedJob(run, recipe, plan));
  if (!job.remote) NoteIdleNodes();
  job.signals = &signals;
  job.check_restart = [&]() -> absl::Status {
    TRAINCTL_RETURN_IF_ERROR(run.CheckInPlace());
    return CheckDataUnchanged(run, recipe);
  };
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunState before, run.ReadState());
  if (options.stop_after >= 0) {
    job.worker_args = {"--stop-after", absl::StrCat(options.stop_after)};
    Tell("note: ", options.stop_after < recipe.train.steps
                       ? absl::StrCat("--stop-after saves and stops after step ", options.stop_after, " of ",
                                      recipe.train.steps)
                       : absl::StrCat("--stop-after ", options.stop_after,
                                      " has no effect: the run ends at step ", recipe.train.steps));
  }
  job.observer = IsDetached() ? MakeDetachedConsole(run, recipe.launch.log_limit_bytes)
                              : MakeJobConsole(output.stderr_terminal);
  TRAINCTL_RETURN_IF_ERROR(monitors.Watch(run, recipe, plan, job));
  const absl::StatusOr<launcher::JobOutcome> ended = launcher::RunJob(job);
  job.observer.reset();
  const absl::Status tidy = TidyUp(run, ended);
  if (tidy.ok() && ended.ok()) PrintOutcome(*ended, run, output);
  monitors.Finish(signals);
  TRAINCTL_RETURN_IF_ERROR(tidy);
  // Slurm may end this process from then on.
  if (const std::string next = GoOnInNextJob(run, recipe, before.num_launches, ended); !next.empty())
    Tell("trainctl: ", next);
  if (!ended.ok()) return ended.status();
  return launcher::LaunchExitCode(ended);
}

// What --verify asks for.
absl::StatusOr<ExitCode> ProveFirst(const recipe::Recipe& recipe, const plan::Plan& plan,
                                    const LaunchOptions& options) {
  return options.verify ? VerifyPlan(recipe.model, plan) : ExitCode::kOk;
}

absl::Status CheckTrust(const std::string& folder, const LaunchOptions& options) {
  return options.trust_folder ? absl::OkStatus() : run::CheckFolderIsTrusted(folder);
}

absl::Status LockToContinue(run::RunFolder& run, const LaunchOptions& options) {
  // Slurm puts no job back into the queue before its former processes are gone.
  const bool is_requeued = cluster::IsRequeued(std::getenv);
  return options.take_over || is_requeued ? TakeOver(run) : run.Lock();
}

absl::StatusOr<ExitCode> Continue(run::RunFolder& run, const recipe::Recipe& before,
                                  const recipe::Recipe& recipe, const LaunchOptions& options,
                                  const Output& output, data::KeptDocuments& kept);

// So that `trainctl status` alone finds it. No reason not to train where it cannot be.
void MarkAsLatest(const run::RunFolder& run, const std::string& root) {
  const absl::Status status = run.MarkAsLatest(root);
  if (status.ok()) return;
  Tell("note: ", absl::StrCat(root, "/latest does not point to this run: ", status.message()));
}

// The stored recipe of a run that is continued. Prints notes if this version of trainctl reads it
// differently.
absl::StatusOr<recipe::Recipe> ReadRecipeToContinue(const run::RunFolder& run) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string stored, ReadFile(run.recipe_path()));
  TRAINCTL_ASSIGN_OR_RETURN(recipe::Recipe recipe, recipe::RecipeFromJson(stored, run.recipe_path()));
  for (const std::string& note : data::KeepEarlierEnd(recipe.data)) Tell("note: ", note);
  return recipe;
}

absl::StatusOr<ExitCode> ResumeAsLaunched(const recipe::LoadedRecipe& now, const LaunchOptions& options,
                                          const Output& output, data::KeptDocuments& kept) {
  TRAINCTL_ASSIGN_OR_RETURN(run::RunFolder run, run::RunFolder::Open(options.run_dir));
  TRAINCTL_RETURN_IF_ERROR(LockToContinue(run, options));
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::Recipe before, ReadRecipeToContinue(run));
  const absl::StatusOr<recipe::Continuation> next = recipe::ContinueAs(before, now);
  if (!next.ok()) {
    return UsageError(absl::StrCat(next.status().message(), "\n", run.path(),
                                   " already contains a run; choose another --run-dir for a new one"));
  }
  // Continue reports these changes.
  const std::vector<std::string> recorded = recipe::RecordedChanges(before, next->recipe);
  for (const std::string& change : next->changes) {
    if (std::find(recorded.begin(), recorded.end(), change) == recorded.end()) Tell("changed: ", change);
  }
  MarkAsLatest(run, now.recipe.run.root);
  for (const std::string& note : recipe::FindNotes(next->recipe, now.origin)) Tell("note: ", note);
  return Continue(run, before, next->recipe, options, output, kept);
}

PrintedLaunch ToPrint(const LaunchOptions& options, const std::string& run_dir) {
  return {options.recipe, run_dir, options.sets, options.stop_after, options.trust_folder};
}

// What another system is given to run this launch, if it is to: the manifest of a job of Kubernetes, the
// script of one of Slurm. `key`: what --json calls it.
struct Printed {
  const char* key = "";
  std::string text;
};
absl::StatusOr<Printed> WhatToSubmit(const recipe::Recipe& recipe, const plan::Plan& plan,
                                     const PrintedLaunch& launch) {
  Printed printed;
  if (recipe.launch.backend == "kubernetes") {
    printed.key = "manifest";
    TRAINCTL_ASSIGN_OR_RETURN(printed.text, MakeManifest(recipe, plan, launch));
  } else if (IsSubmitted(recipe)) {
    printed.key = "script";
    TRAINCTL_ASSIGN_OR_RETURN(printed.text, MakeSlurmScript(recipe, launch));
  }
  return printed;
}

// The end of a dry run: prints everything that this machine and the hosts of ssh lack, and returns the exit
// code of a launch. If nothing is missing, prints the files and commands with which others run it.
ExitCode TellMissing(const plan::Plan& plan, const recipe::Recipe& recipe, const PrintedLaunch& launch,
                     const std::vector<std::string>& notes, std::vector<absl::Status> checks,
                     const Output& output) {
  const auto remote = FindRemoteNodes(recipe);
  const bool has_hosts = remote.ok() && remote->has_value();
  if (has_hosts) {
    for (absl::Status& status : AskHosts(**remote)) checks.push_back(std::move(status));
  }
  Printed printed;
  if (AsOneError(checks).ok()) {
    absl::StatusOr<Printed> made = WhatToSubmit(recipe, plan, launch);
    checks.push_back(made.status());
    if (made.ok()) printed = *std::move(made);
  }
  const std::vector<std::string> missing = TextsOf(checks);
  for (const std::string& text : missing) Tell("missing here: ", text);
  const std::vector<std::string> starts = has_hosts ? StartCommands(**remote) : std::vector<std::string>();
  for (const std::string& command : starts) Tell("starts agents with: ", command);
  if (output.json) {
    Json json = PlanWithEstimates(plan, recipe);
    for (const std::string& note : notes) json["notes"].push_back(note);
    json["missing"] = missing;
    if (!starts.empty()) json["start_commands"] = starts;
    if (!printed.text.empty()) json[printed.key] = printed.text;
    std::puts(PrintableJson(json, 2).c_str());
  } else {
    std::fputs(printed.text.c_str(), stdout);
  }
  if (missing.empty()) {
    Tell("", absl::StrCat(has_hosts ? "this machine and the hosts have" : "this machine has",
                          " everything that the launch needs"));
  }
  return ExitCodeFor(AsOneError(checks));
}

// Reports the layout and the step wherever `plan` does, then what is missing here.
absl::StatusOr<ExitCode> DryRun(const LaunchOptions& options, const Output& output) {
  std::vector<std::string> unset;
  data::KeptDocuments kept;
  TRAINCTL_ASSIGN_OR_RETURN(
      const recipe::LoadedRecipe loaded,
      recipe::LoadRecipe(options.recipe, options.sets, PlanAccess(&unset, &kept), recipe::Purpose::kPlan));
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(loaded.recipe));
  std::vector<absl::Status> checks = LacksOfRecipe(loaded, unset);
  LaunchNeeds needs = FindMissing(loaded.recipe, host, options.run_dir, output, &kept);
  for (absl::Status& status : needs.missing) checks.push_back(std::move(status));
  checks.push_back(loaded.unknown_length);
  std::vector<std::string> notes = loaded.notes;
  notes.insert(notes.end(), needs.notes.begin(), needs.notes.end());
  // The launch asks when it has the folder's lock: a run that is under way is the other error.
  if (!options.run_dir.empty() && HoldsWork(options.run_dir)) {
    checks.push_back(AlreadyHoldsARun(options.run_dir));
  }
  const absl::StatusOr<plan::Plan> plan = planner::MakePlanFor(loaded.recipe, host);
  if (!plan.ok()) {
    for (const std::string& text : TextsOf(checks)) Tell("missing here: ", text);
    return plan.status();
  }
  for (const std::string& note : notes) Tell("note: ", note);
  PrintChoice(*plan, loaded.recipe);
  return TellMissing(*plan, loaded.recipe, ToPrint(options, options.run_dir), notes, std::move(checks),
                     output);
}

// What a launch that Slurm makes later cannot do.
absl::Status CheckForLater(const LaunchOptions& options) {
  if (options.verify) {
    return UsageError(
        "--verify works only if the launch starts now; before submitting a job, run: trainctl verify");
  }
  if (options.from_scratch || options.take_over) {
    return UsageError(absl::StrCat(options.from_scratch ? "--from-scratch" : "--take-over",
                                   " applies to a single launch, but a submitted job may launch several "
                                   "times; use it with resume inside an allocation (salloc)"));
  }
  return absl::OkStatus();
}

// Hands the run to Slurm, which launches it later and elsewhere.
absl::StatusOr<ExitCode> Submit(run::RunFolder& run, const recipe::Recipe& recipe,
                                const LaunchOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string job, SubmitRun(run, recipe, ToPrint(options, run.path())));
  const std::string quoted = ShellQuote(run.path());
  if (output.json) {
    const Json report = {{"schema", "trainctl.submit.v1"}, {"run", run.path()}, {"job", job}};
    std::puts(PrintableJson(report).c_str());
  } else {
    std::printf("submitted as Slurm job %s: %s\n", job.c_str(), launcher::PrintableText(run.path()).c_str());
  }
  std::fputs(absl::StrCat("see: trainctl status ", quoted, "   trainctl logs --follow ", quoted,
                          "   end it: trainctl stop ", quoted, "\n")
                 .c_str(),
             stderr);
  return ExitCode::kOk;
}

// The nodes of the job make their own plan; this one tells of what no machine could run.
absl::StatusOr<ExitCode> LaunchLater(const recipe::LoadedRecipe& loaded, const LaunchOptions& options,
                                     const Output& output) {
  TRAINCTL_RETURN_IF_ERROR(CheckForLater(options));
  const recipe::Recipe& recipe = loaded.recipe;
  const bool continues = HoldsARun(options.run_dir);
  if (continues && !options.or_resume) return AlreadyHoldsARun(options.run_dir);
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(recipe));
  if (!continues) {
    const LaunchNeeds needs = FindMissing(recipe, host, options.run_dir, output);
    TRAINCTL_RETURN_IF_ERROR(AsOneError(needs.missing));
    for (const std::string& note : needs.notes) Tell("note: ", note);
  }
  for (const std::string& note : loaded.notes) Tell("note: ", note);
  const absl::StatusOr<plan::Plan> plan = planner::MakePlanFor(recipe, host);
  if (plan.ok()) {
    PrintChoice(*plan, recipe);
  } else if (ExitCodeFor(plan.status()) == ExitCode::kUsage) {
    return plan.status();
  } else {
    Tell("note: cannot plan on this machine, so the plan will be computed by the job: ",
         plan.status().message());
  }
  TRAINCTL_ASSIGN_OR_RETURN(run::RunFolder run,
                            options.run_dir.empty()
                                ? run::RunFolder::Create(recipe.run.root, recipe.run.name, RealClock())
                                : run::RunFolder::CreateAt(options.run_dir));
  TRAINCTL_RETURN_IF_ERROR(CheckTrust(run.path(), options));
  if (!options.run_dir.empty()) MarkAsLatest(run, recipe.run.root);
  return Submit(run, recipe, options, output);
}

// Makes room for a new launch where the last one ended before its first step. The caller has the run's lock.
// Logs stay, and the next launch appends to them.
absl::Status SetAsideFailedLaunch(run::RunFolder& run) {
  TRAINCTL_RETURN_IF_ERROR(run.BeginTerm());
  for (const char* name :
       {"journal.jsonl", "recipe.json", "plan.json", "data.json", "attention.json", "model-files"}) {
    if (!PathExists(absl::StrCat(run.path(), "/", name))) continue;
    TRAINCTL_RETURN_IF_ERROR(run.SetAside(name).status());
  }
  Tell("note: ",
       "the previous launch in this folder ended before its first step; its files were renamed to "
       "*.set-aside-N");
  return absl::OkStatus();
}

// Asked before the data is read, which may take long, and again with the lock of the new run. A run that is
// under way is reported as such.
absl::Status CheckHoldsNoWork(const std::string& folder) {
  if (!HoldsWork(folder)) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(run::RunFolder run, run::RunFolder::Open(folder));
  TRAINCTL_RETURN_IF_ERROR(run.Lock());
  return AlreadyHoldsARun(run.path());
}

absl::StatusOr<ExitCode> Launch(const LaunchOptions& options, const Output& output) {
  if (options.or_resume && options.run_dir.empty()) {
    return UsageError("--or-resume requires --run-dir, the folder of the run to launch or continue");
  }
  if (options.from_scratch && !options.or_resume) {
    return UsageError(
        "--from-scratch restarts a run whose checkpoints are lost; use it with --or-resume or with resume");
  }
  if (options.take_over && !options.or_resume) {
    return UsageError(
        "--take-over continues a run whose launcher is gone; use it with --or-resume or with resume");
  }
  if (!options.run_dir.empty()) TRAINCTL_RETURN_IF_ERROR(CheckTrust(options.run_dir, options));
  const bool continues = options.or_resume && HoldsWork(options.run_dir);
  if (options.dry_run && !continues) return DryRun(options, output);
  if (!options.run_dir.empty() && !continues) TRAINCTL_RETURN_IF_ERROR(CheckHoldsNoWork(options.run_dir));
  const absl::StatusOr<run::RunFolder> earlier = run::RunFolder::Open(options.run_dir);
  data::KeptDocuments kept(continues && earlier.ok() ? earlier->documents_path() : "");
  TRAINCTL_ASSIGN_OR_RETURN(recipe::LoadedRecipe loaded,
                            recipe::LoadRecipe(options.recipe, options.sets, MachineAccess(&kept)));
  if (loaded.recipe.launch.backend == "kubernetes" && !options.dry_run) {
    TRAINCTL_ASSIGN_OR_RETURN(const cluster::KubernetesPod pod, ThisPod(loaded.recipe));
    if (pod.index > 0) return RunPodAgent(pod, loaded.recipe, options.run_dir);
  }
  if (IsSubmitted(loaded.recipe) && !options.dry_run) return LaunchLater(loaded, options, output);
  if (continues) return ResumeAsLaunched(loaded, options, output, kept);
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(loaded.recipe));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, planner::MakePlanFor(loaded.recipe, host));
  for (const std::string& note : loaded.notes) Tell("note: ", note);
  PrintChoice(plan, loaded.recipe);
  const LaunchNeeds needs = FindMissing(loaded.recipe, host, options.run_dir, output, &kept);
  TRAINCTL_RETURN_IF_ERROR(AsOneError(needs.missing));
  for (const std::string& note : needs.notes) Tell("note: ", note);
  TRAINCTL_ASSIGN_OR_RETURN(const ExitCode proven, ProveFirst(loaded.recipe, plan, options));
  if (proven != ExitCode::kOk) return proven;
  recipe::FreezeForRun(loaded.recipe);
  loaded.recipe.data.end_of_document = needs.end_of_document;
  // What "auto" became stays: another machine must not change the numerics of a run.
  loaded.recipe.train.precision = plan.setting.types.compute == DType::kBF16 ? "bf16" : "fp32";
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<data::FileFingerprint> files,
                            data::Fingerprint(loaded.recipe.data));
  TRAINCTL_ASSIGN_OR_RETURN(RunMonitors monitors, RunMonitors::Open(loaded.recipe));
  TRAINCTL_ASSIGN_OR_RETURN(launcher::SignalPipe signals, TakeSignals());
  TRAINCTL_ASSIGN_OR_RETURN(
      run::RunFolder run,
      options.run_dir.empty()
          ? run::RunFolder::Create(loaded.recipe.run.root, loaded.recipe.run.name, RealClock())
          : run::RunFolder::CreateAt(options.run_dir));
  TRAINCTL_RETURN_IF_ERROR(CheckTrust(run.path(), options));  // another user may have created it by now
  TRAINCTL_RETURN_IF_ERROR(run.Lock());
  if (HoldsWork(run.path())) return AlreadyHoldsARun(run.path());
  if (HoldsARun(run.path())) TRAINCTL_RETURN_IF_ERROR(SetAsideFailedLaunch(run));
  if (!options.run_dir.empty()) MarkAsLatest(run, loaded.recipe.run.root);
  std::fprintf(stderr, "run folder: %s\n", launcher::PrintableText(run.path()).c_str());
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(run.data_path(), data::FormatDataRecord(files, needs.uses)));
  TRAINCTL_RETURN_IF_ERROR(KeepModelFiles(run, loaded.recipe));
  TRAINCTL_RETURN_IF_ERROR(WriteRunFiles(run, loaded.recipe, plan));
  KeepDocuments(run, loaded.recipe, kept);
  return RunWorkers(run, loaded.recipe, plan, signals, monitors, options, output);
}

// Warns if the folder is a copy of a run that is still running.
void NoteOriginal(const run::RunFolder& run) {
  const absl::StatusOr<run::RunState> state = run.ReadState();
  if (!state.ok() || state->status != run::RunStatus::kRunning) return;
  const absl::Status asked = AskLauncher(run, *state).status();
  if (absl::IsAborted(asked)) Tell("note: ", asked.message());
}

absl::StatusOr<ExitCode> Resume(const LaunchOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(run::RunFolder run, run::RunFolder::Open(options.run));
  TRAINCTL_RETURN_IF_ERROR(CheckTrust(run.path(), options));
  TRAINCTL_RETURN_IF_ERROR(LockToContinue(run, options));
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::Recipe before, ReadRecipeToContinue(run));
  data::KeptDocuments kept(run.documents_path());
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe loaded,
                            recipe::ApplyResumeSets(before, options.sets, MachineAccess(&kept)));
  if (IsSubmitted(loaded.recipe) && !options.dry_run) {
    TRAINCTL_RETURN_IF_ERROR(CheckForLater(options));
    TRAINCTL_RETURN_IF_ERROR(CheckCanSubmit());
    return Submit(run, loaded.recipe, options, output);
  }
  NoteOriginal(run);
  for (const std::string& note : loaded.notes) Tell("note: ", note);
  return Continue(run, before, loaded.recipe, options, output, kept);
}

bool SetsALayout(const std::vector<std::string>& sets) {
  return std::any_of(sets.begin(), sets.end(), [](const std::string& set) {
    return recipe::DecidesLayout(absl::string_view(set).substr(0, set.find('=')));
  });
}

// The plan that a run goes on with. What its last launch resolved stays, so that another amount of free
// memory bends nothing, unless another layout is asked for now ("auto" asks, too) or the old one cannot be
// any more.
absl::StatusOr<plan::Plan> PlanToContinue(const run::RunFolder& run, const recipe::Recipe& before,
                                          const recipe::Recipe& recipe, const cluster::Host& host,
                                          const std::vector<std::string>& sets) {
  if (SetsALayout(sets) || !recipe::AsksForSameLayout(before, recipe)) {
    return planner::MakePlanFor(recipe, host);
  }
  const absl::StatusOr<std::string> text = ReadFile(run.plan_path());
  const absl::StatusOr<plan::Plan> last =
      text.ok() ? plan::PlanFromJson(*text, run.plan_path()) : absl::StatusOr<plan::Plan>(text.status());
  if (!last.ok()) {
    Tell("note: computing a new plan: ", last.status().message());
    return planner::MakePlanFor(recipe, host);
  }
  recipe::Recipe frozen = planner::Frozen(recipe, *last);
  // What this machine has now, and what is stated now.
  frozen.cluster.memory_limit_bytes = recipe.cluster.memory_limit_bytes;
  if (recipe.cluster.threads_per_worker.has_value()) {
    frozen.cluster.threads_per_worker = recipe.cluster.threads_per_worker;
  }
  absl::StatusOr<plan::Plan> plan = planner::MakePlanFor(frozen, host);
  const ExitCode code = ExitCodeFor(plan.status());
  if (code != ExitCode::kInfeasible && code != ExitCode::kUsage) return plan;
  std::fprintf(stderr,
               "note: computing a new plan, because the previous layout, %s, is no longer possible: %s\n",
               last->layout.ToString().c_str(), std::string(plan.status().message()).c_str());
  return planner::MakePlanFor(recipe, host);
}

// What is changed of the run itself, and what it makes of the learning rate.
void TellChanges(const run::RunFolder& run, const Start& start, const recipe::Recipe& before,
                 const recipe::Recipe& recipe) {
  for (const std::string& change : start.changes) Tell("changed: ", change);
  const optim::LrSchedule old_rates = recipe::LearningRates(before);
  const optim::LrSchedule new_rates = recipe::LearningRates(recipe);
  if (start.changes.empty() || new_rates == old_rates) return;
  const int64_t next = start.step < 0 ? 0 : std::max<int64_t>(run.Checkpoints().step, 0);
  const double was = optim::LearningRate(old_rates, next);
  const double is = optim::LearningRate(new_rates, next);
  Tell("  ", absl::StrFormat("learning rate of step %d: %.4g%s", next + 1, is,
                             is == was ? ", as before" : absl::StrFormat(" (was %.4g)", was)));
}

// A run cannot be shortened to fewer steps than it has done.
absl::Status TooShort(const run::RunFolder& run, const recipe::Recipe& before, const recipe::Recipe& recipe,
                      int64_t done) {
  const std::string resume = absl::StrCat("trainctl resume ", ShellQuote(run.path()));
  return UsageError(absl::StrCat("train.steps = ", recipe.train.steps, " is below the ", done, " steps that ",
                                 run.path(), " has already completed (its length is ", before.train.steps,
                                 " steps); to continue: ", resume,
                                 done < before.train.steps ? "" : " --set train.steps=N"));
}

absl::StatusOr<ExitCode> Continue(run::RunFolder& run, const recipe::Recipe& before,
                                  const recipe::Recipe& recipe, const LaunchOptions& options,
                                  const Output& output, data::KeptDocuments& kept) {
  const absl::Status data = CheckDataUnchanged(run, recipe);
  if (!options.dry_run) TRAINCTL_RETURN_IF_ERROR(data);
  TRAINCTL_ASSIGN_OR_RETURN(Start start, DecideStart(run, options.from_scratch));
  for (const std::string& note : start.notes) std::fprintf(stderr, "%s\n", note.c_str());
  start.changes = recipe::RecordedChanges(before, recipe);
  int64_t done = start.step;
  const bool stops_early = options.stop_after >= 0 && options.stop_after < recipe.train.steps;
  const int64_t last = stops_early ? options.stop_after : recipe.train.steps;
  if (done >= last) {
    // Only a checkpoint that can be read proves it.
    std::vector<std::string> warnings;
    const auto newest = checkpoint::FindNewestGood(run.checkpoints_path(), &warnings);
    for (const std::string& warning : warnings) Tell("warning: ", warning);
    if (!newest.ok()) return newest.status();
    done = newest->step;
  }
  if (done > recipe.train.steps) return TooShort(run, before, recipe, done);
  if (done >= recipe.train.steps) {
    const std::string& path = run.path();
    std::fputs(
        absl::StrCat(launcher::PrintableText(path), " has completed its ", done,
                     " steps; to continue: trainctl resume ", ShellQuote(path), " --set train.steps=N\n")
            .c_str(),
        stderr);
    PrintOutcome({.kind = launcher::JobOutcome::Kind::kFinished}, run, output);
    return ExitCode::kOk;
  }
  if (done >= last) {
    std::fputs(absl::StrCat(launcher::PrintableText(run.path()), " has completed step ", done,
                            ", but --stop-after is ", last, ", so there are no steps left to run\n")
                   .c_str(),
               stderr);
    PrintOutcome({.kind = launcher::JobOutcome::Kind::kStoppedResumable}, run, output);
    return ExitCode::kStoppedResumable;
  }
  TellChanges(run, start, before, recipe);
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(recipe));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, PlanToContinue(run, before, recipe, host, options.sets));
  PrintChoice(plan, recipe);
  LaunchNeeds needs = FindMissingToContinue(recipe, host, run, /*begins_again=*/start.step < 0);
  needs.missing.insert(needs.missing.begin(), data);
  for (const std::string& note : needs.notes) Tell("note: ", note);
  if (options.dry_run) {
    return TellMissing(plan, recipe, ToPrint(options, run.path()), needs.notes, std::move(needs.missing),
                       output);
  }
  TRAINCTL_RETURN_IF_ERROR(FindRemoteNodes(recipe).status());
  TRAINCTL_RETURN_IF_ERROR(AsOneError(needs.missing));
  TRAINCTL_RETURN_IF_ERROR(ReadToKeep(recipe, output, kept));
  TRAINCTL_ASSIGN_OR_RETURN(const ExitCode proven, ProveFirst(recipe, plan, options));
  if (proven != ExitCode::kOk) return proven;
  TRAINCTL_ASSIGN_OR_RETURN(RunMonitors monitors, RunMonitors::Open(recipe));
  TRAINCTL_ASSIGN_OR_RETURN(launcher::SignalPipe signals, TakeSignals());
  TRAINCTL_RETURN_IF_ERROR(PrepareStart(run, start));
  TRAINCTL_RETURN_IF_ERROR(WriteRunFiles(run, recipe, plan));
  KeepDocuments(run, recipe, kept);
  return RunWorkers(run, recipe, plan, signals, monitors, options, output);
}

void AddFromScratch(CLI::App& verb, LaunchOptions& options) {
  verb.add_flag("--from-scratch", options.from_scratch)
      ->description("If the checkpoints are lost, move the old files aside and restart at step 1");
}

void AddTakeOver(CLI::App& verb, LaunchOptions& options) {
  verb.add_flag("--take-over", options.take_over)
      ->description("Take over a run whose launcher host is gone. Fails if that launcher still responds");
}

void AddCommon(CLI::App& verb, LaunchOptions& options) {
  verb.add_option("--set", options.sets, "Override a field: KEY=VALUE (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  verb.add_option("--stop-after", options.stop_after, "Save and stop after this step (exit code 75)")
      ->check(WholeNumber(1))
      ->type_name("N");
  verb.add_flag("--dry-run", options.dry_run)
      ->description(
          "Print the plan and list everything that this machine and the launch.ssh hosts lack, without "
          "starting anything (exit code 2, 5 or 6 if something is missing)");
  verb.add_flag("--verify", options.verify)
      ->description(
          "First check the layout's gradients, as `trainctl verify` does (exit code 7 if they are wrong)");
  verb.add_flag("--trust-folder", options.trust_folder)
      ->description("Use the run folder even if it belongs to another user or others can modify it");
  verb.add_flag("--detach", options.detach)
      ->description("Return after the first step; the run continues in the background");
  AddJsonFlag(verb);
}

// The verb, or another process that runs it while this one waits for its first step.
Action Detachable(std::shared_ptr<LaunchOptions> options,
                  absl::StatusOr<ExitCode> (*verb)(const LaunchOptions&, const Output&)) {
  return [options, verb](const Output& output) -> absl::StatusOr<ExitCode> {
    // Whoever reads the output may leave, the terminal may close: the job goes on and ends as it would.
    std::signal(SIGPIPE, SIG_IGN);
    if (options->dry_run && options->verify) {
      return UsageError("--dry-run does not start the workers that --verify needs; run: trainctl verify");
    }
    if (options->dry_run) EndAsUsualOnSignals();
    const bool detach = options->detach && !options->dry_run;
    const bool is_detached = BeginAsDetached(detach);
    if (!is_detached && !options->dry_run) {
      TRAINCTL_RETURN_IF_ERROR(CheckStartedOnce());
      if (detach) NoteBatchJob();
    }
    if (detach && !is_detached) return RunDetached(output);
    return verb(*options, output);
  };
}

}  // namespace

void AddLaunch(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("launch", "Start a new training run from a recipe");
  auto options = std::make_shared<LaunchOptions>();
  verb->add_option("RECIPE", options->recipe, "Recipe (TOML)")->required();
  verb->add_option("--run-dir", options->run_dir,
                   "Use this run folder instead of creating one under run.root. Either way, the link "
                   "run.root/latest (runs/latest) points to it")
      ->type_name("FOLDER");
  verb->add_flag("--or-resume", options->or_resume)
      ->description(
          "Continue the run in --run-dir if it exists, so that a requeued job can use the same command");
  AddFromScratch(*verb, *options);
  AddTakeOver(*verb, *options);
  AddCommon(*verb, *options);
  SetExample(*verb,
             "trainctl launch recipes/toy_1m_cpu.toml --set train.steps=50 --set cluster.devices_per_node=2");
  verb->callback([&action, options] { action = Detachable(options, Launch); });
}

void AddResume(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("resume", "Continue a run from its newest valid checkpoint");
  auto options = std::make_shared<LaunchOptions>();
  verb->add_option("RUN", options->run, "Run folder (default: runs/latest)");
  AddFromScratch(*verb, *options);
  AddTakeOver(*verb, *options);
  AddCommon(*verb, *options);
  SetExample(*verb, "trainctl resume runs/latest --set train.steps=400");
  verb->callback([&action, options] { action = Detachable(options, Resume); });
}

}  // namespace trainctl::cli
