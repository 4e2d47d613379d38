// `trainctl status`: how far a run is, what it does, and how it failed.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/failure_report.h"
#include "apps/trainctl/job_access.h"
#include "apps/trainctl/progress_json.h"
#include "apps/trainctl/run_activity.h"
#include "apps/trainctl/slurm_job.h"
#include "base/files.h"
#include "base/json.h"
#include "base/shell_quote.h"
#include "base/units.h"
#include "data/batch_source.h"
#include "data/data_record.h"
#include "launcher/printable_text.h"
#include "rpc/admin_client.h"
#include "rpc/worker_lines.h"
#include "run/event_text.h"
#include "run/run_folder.h"
#include "run/run_progress.h"
#include "telemetry/byte_progress.h"

namespace trainctl::cli {
namespace {

// What the journal, the logs and, if there is one, the launcher say.
struct StatusReport {
  std::string path;
  run::RunState state;
  checkpoint::NewestCommitted checkpoints;
  run::RunProgress progress;
  std::optional<rpc::JobStatus> live;
  std::optional<RunJob> job;  // of Slurm, that was submitted for it
  // Of the journal; or "queued": its job waits; "interrupted": the launcher ended without a word, or works on
  // the folder of which this one is a copy; "not
  // answering", "unreachable": it is of another host, and nothing tells whether it lives.
  std::string status;
  bool is_elsewhere = false;             // the launcher of a run that may still run is of another machine
  std::string no_answer;                 // why the launcher, of another host or folder, gave none
  std::string activity;                  // while it runs: "starting: restore", "first step", "step", "save"
  std::optional<FailureReport> failure;  // of a run that has failed
  bool shares_devices = false;           // as the plan says: speeds mean nothing
  std::vector<data::SourceUse> uses;     // as counted by the launch; empty if unknown

  bool is_running() const {
    return state.status == run::RunStatus::kRunning && status != "interrupted" && status != "unreachable";
  }
};

// No step of the workers that are at work is done yet.
bool HasNoStepYet(const StatusReport& report) {
  const absl::Time started = report.state.generation_started;
  return started == absl::InfinitePast() || !report.progress.done.has_value() ||
         *report.progress.done < started;
}

// What the first rank does.
std::string Activity(const StatusReport& report) {
  if (!report.live.has_value()) return "";
  const rpc::WorkerStatus* first = nullptr;
  for (const rpc::WorkerStatus& worker : report.live->workers) {
    if (worker.rank == 0) first = &worker;
  }
  const std::string& phase = report.live->phase;
  if (phase == "failed" || phase == "finished") return "ending";
  if (phase != "running" || first == nullptr) return ActivityBeforeFirstStep(-1, "");
  return HasNoStepYet(report) ? ActivityBeforeFirstStep(first->step, first->phase) : first->phase;
}

bool RunSharesDevices(const run::RunFolder& run) {
  const absl::StatusOr<std::string> text = ReadFile(run.plan_path());
  const absl::StatusOr<Json> plan = text.ok() ? ParseJson(*text, run.plan_path()) : text.status();
  if (!plan.ok() || !plan->is_object()) return false;
  const auto field = plan->find("shares_devices");
  return field != plan->end() && field->is_boolean() && field->get<bool>();
}

absl::StatusOr<StatusReport> MakeReport(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(path));
  StatusReport report;
  report.path = run.path();
  TRAINCTL_ASSIGN_OR_RETURN(report.state, run.ReadState());
  if (!report.state.damage.empty()) std::fprintf(stderr, "warning: %s\n", report.state.damage.c_str());
  report.checkpoints = run.Checkpoints();
  report.shares_devices = RunSharesDevices(run);
  if (const absl::StatusOr<std::string> record = ReadFile(run.data_path()); record.ok()) {
    report.uses = data::ParseSourceUses(*record);
  }
  report.status = std::string(run::RunStatusName(report.state.status));
  if (report.state.status == run::RunStatus::kRunning) {
    absl::StatusOr<rpc::JobStatus> live = AskLauncher(run, report.state);
    const run::RunFolder::Work work = run.FindWork();
    report.is_elsewhere = IsElsewhere(run, report.state);
    if (live.ok()) {
      report.live = *std::move(live);
    } else if (absl::IsAborted(live.status())) {
      report.status = "interrupted";
      report.no_answer = std::string(live.status().message());
    } else if (work == run::RunFolder::Work::kNone) {
      report.status = "interrupted";
    } else if (report.is_elsewhere) {
      if (work == run::RunFolder::Work::kUnknown) report.status = "unreachable";
      report.no_answer = std::string(live.status().message());
    } else {
      report.status = "not answering";
    }
  }
  report.job = FindRunJob(run, /*asks=*/!report.live.has_value());
  if (!report.is_running() && report.job && report.job->state && report.job->state->IsWaiting()) {
    report.status = "queued";
  }
  report.progress = run::ReadProgress(run, report.state.workers_started());
  if (!report.is_running()) report.progress.time_left.reset();
  report.activity = Activity(report);
  if (report.state.status == run::RunStatus::kFailed) report.failure = ReportFailure(run, report.state);
  return report;
}

std::optional<absl::Duration> AgeOfLastStep(const StatusReport& report) {
  if (!report.progress.done.has_value()) return std::nullopt;
  return std::max(absl::Now() - *report.progress.done, absl::ZeroDuration());
}

// Whether the metrics for Prometheus are still available. A port closes with its launcher; a file stays.
bool HasMetrics(const StatusReport& report) {
  return !report.state.metrics.empty() &&
         (report.is_running() || !absl::StartsWith(report.state.metrics, "http:"));
}

Json ToJson(const StatusReport& report) {
  const run::RunProgress& at = report.progress;
  Json json = {{"schema", "trainctl.status.v1"},
               {"run", report.path},
               {"status", report.status},
               {"step", StepOrNull(at.step)},
               {"total_steps", StepOrNull(at.total_steps)},
               {"loss", NumberOrNull(at.loss)},
               {"loss_step", StepOrNull(at.loss_step)},
               {"skipped_steps", at.skipped_steps},
               {"tokens_per_second", NumberOrNull(at.tokens_per_second)},
               {"mfu", NumberOrNull(at.mfu)},
               {"seconds_per_step", SecondsOrNull(at.per_step)},
               {"seconds_left", SecondsOrNull(at.time_left)},
               {"data", data::UsesToJson(report.uses, std::max<int64_t>(at.total_steps, 0))},
               {"last_step_age_seconds", SecondsOrNull(AgeOfLastStep(report))},
               {"memory_bytes", at.memory_bytes.has_value() ? Json(*at.memory_bytes) : Json(nullptr)},
               {"activity", report.activity.empty() ? Json(nullptr) : Json(report.activity)},
               {"host", report.state.host.empty() ? Json(nullptr) : Json(report.state.host)},
               {"nodes", report.state.nodes},
               {"no_answer", report.no_answer.empty() ? Json(nullptr) : Json(report.no_answer)},
               {"world_size", report.state.world_size},
               {"generation", report.state.generation},
               {"launches", report.state.num_launches},
               {"restarts", report.state.num_restarts},
               {"metrics", HasMetrics(report) ? Json(report.state.metrics) : Json(nullptr)},
               {"message", report.state.message},
               {"last_words", report.failure ? Json(report.failure->log_tail) : Json::array()},
               {"advice", !report.failure || report.failure->advice.empty() ? Json(nullptr)
                                                                            : Json(report.failure->advice)}};
  if (report.shares_devices) json["shared_devices"] = true;
  json["last_event"] = report.state.last
                           ? ParseJson(run::EventToJson(*report.state.last), "").value_or(nullptr)
                           : Json(nullptr);
  json["batch_job"] = nullptr;
  if (report.job) {
    const std::string reason = report.job->state ? report.job->state->reason : "";
    json["batch_job"] = {{"id", report.job->id},
                         {"state", report.job->state ? Json(report.job->state->state) : Json(nullptr)},
                         {"reason", reason.empty() ? Json(nullptr) : Json(reason)}};
  }
  json["checkpoint_step"] = StepOrNull(report.checkpoints.step);
  json["checkpoint_problems"] = report.checkpoints.Problems();
  json["workers"] = Json::array();
  if (report.live) {
    json["launcher_pid"] = report.live->pid;
    json["phase"] = report.live->phase;
    json["stop"] = report.live->stop;
    for (const rpc::WorkerStatus& worker : report.live->workers) {
      json["workers"].push_back({{"rank", worker.rank},
                                 {"node", worker.node},
                                 {"pid", worker.pid},
                                 {"state", worker.state},
                                 {"step", StepOrNull(worker.step)},
                                 {"phase", worker.phase},
                                 {"peak_bytes", worker.peak_bytes ? Json(*worker.peak_bytes) : Json(nullptr)},
                                 {"silent_ms", absl::ToInt64Milliseconds(worker.silent)}});
    }
  }
  return json;
}

// One line per training source.
std::string EpochsText(const StatusReport& report) {
  const run::RunProgress& at = report.progress;
  std::string text;
  for (const data::SourceUse& use : report.uses) {
    const auto epochs = [&](int64_t steps) {
      const double epochs = use.epochs_per_step * static_cast<double>(std::max<int64_t>(steps, 0));
      return absl::StrFormat("%.*f", epochs < 10 ? 2 : 0, epochs);
    };
    absl::StrAppend(&text, text.empty() ? "epochs      " : "            ", epochs(at.step), " of ",
                    epochs(at.total_steps), report.uses.size() > 1 ? absl::StrCat(" of ", use.source) : "",
                    ", ", FormatCount(use.epoch_tokens), " tokens each\n");
  }
  return text;
}

std::string ProgressText(const StatusReport& report) {
  const run::RunProgress& at = report.progress;
  std::string text = "step        ";
  if (at.step < 1) {
    absl::StrAppend(&text, "none completed yet");
  } else {
    absl::StrAppend(&text, at.step);
    if (at.total_steps > 0) {
      absl::StrAppend(&text, " of ", at.total_steps, " ", telemetry::ProgressBar(at.step, at.total_steps));
    }
    if (at.time_left.has_value()) absl::StrAppend(&text, " ", telemetry::TimeLeft(*at.time_left), " left");
    if (const auto age = AgeOfLastStep(report)) absl::StrAppend(&text, ", done ", rpc::Age(*age), " ago");
  }
  absl::StrAppend(&text, "\n", EpochsText(report));
  if (report.live.has_value() && HasNoStepYet(report)) {
    absl::StrAppend(&text, "now         ", report.activity, "\n");
  }
  if (at.step < 1) return text;
  if (at.loss.has_value()) {
    absl::StrAppendFormat(&text, "loss        %.4f", *at.loss);
    if (at.loss_step != at.step) absl::StrAppend(&text, " (step ", at.loss_step, ")");
    absl::StrAppend(&text, "\n");
  }
  if (at.skipped_steps > 0) {
    absl::StrAppend(&text, "skipped     ", FormatNumberOf(at.skipped_steps, "update"),
                    ", because gradients were not finite\n");
  }
  if (at.tokens_per_second.has_value()) {
    absl::StrAppendFormat(&text, "speed       %.0f tokens/s", *at.tokens_per_second);
    if (at.mfu.has_value()) absl::StrAppendFormat(&text, ", mfu %.1f%%", 100 * *at.mfu);
    if (at.per_step.has_value()) {
      absl::StrAppendFormat(&text, ", %.3g s per step", absl::ToDoubleSeconds(*at.per_step));
    }
    if (report.shares_devices) absl::StrAppend(&text, " (not meaningful, because workers share devices)");
    absl::StrAppend(&text, "\n");
  }
  if (at.memory_bytes.has_value()) {
    absl::StrAppend(&text, "memory      ", FormatBytes(*at.memory_bytes), " of tensors at peak on rank 0\n");
  }
  return text;
}

// Of a run that is not at work any more.
std::string EndText(const StatusReport& report) {
  std::string text;
  if (!report.state.message.empty()) {
    absl::StrAppend(&text, "message     ", launcher::PrintableText(report.state.message, true), "\n");
  }
  const bool is_stopped = report.state.status == run::RunStatus::kStopped ||
                          report.state.status == run::RunStatus::kStoppedUnsaved;
  if (is_stopped && report.status != "queued") {
    absl::StrAppend(&text, report.checkpoints.step < 0 ? "start it again with" : "continue with",
                    ": trainctl resume ", ShellQuote(report.path), "\n");
  }
  if (!report.failure) return text;
  constexpr size_t kShown = 5;
  return absl::StrCat(text, "when        ", WhenText(*report.failure), "\n",
                      LogAndWayOnText(*report.failure, kShown));
}

std::string LastEventText(const run::JournalEvent& event) {
  return absl::StrCat("last event  ",
                      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", event.time, absl::UTCTimeZone()), ", ",
                      launcher::PrintableText(run::EventText(event)), "\n");
}

std::string JobText(const RunJob& job) {
  std::string text = absl::StrCat("job         ", job.id, " in Slurm");
  if (!job.state) return absl::StrCat(text, "\n");
  absl::StrAppend(&text, ": ");
  absl::StrAppend(&text, job.state->state);
  if (!job.state->reason.empty()) absl::StrAppend(&text, " (", job.state->reason, ")");
  return absl::StrCat(launcher::PrintableText(text), "\n");
}

// What is known of a run whose launcher, of another host, cannot be asked.
std::string NoAnswerText(const StatusReport& report) {
  const std::string name = LauncherName(report.state);
  const std::string quoted = ShellQuote(report.path);
  std::string text =
      absl::StrCat("launcher    ", name, ", since ",
                   absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", report.state.started, absl::UTCTimeZone()),
                   "\n            no answer: ", launcher::PrintableText(report.no_answer), "\n");
  if (report.status == "unreachable") {
    absl::StrAppend(
        &text, "This host cannot determine whether the run is still training. If ", report.state.host,
        " or that process is gone for good, take over the run: trainctl resume ", quoted, " --take-over\n");
  }
  return text;
}

std::string ToText(const StatusReport& report) {
  std::string text =
      absl::StrFormat("run         %s\nstatus      %s", launcher::PrintableText(report.path), report.status);
  if (report.live) {
    absl::StrAppend(&text, " (", report.live->phase, ", process ", report.live->pid,
                    report.is_elsewhere ? absl::StrCat(" on ", report.state.host) : "", ")");
    if (!report.live->stop.empty()) absl::StrAppend(&text, ", stopping ", report.live->stop);
  }
  absl::StrAppend(&text, "\n", report.job ? JobText(*report.job) : "", ProgressText(report));
  absl::StrAppend(
      &text, "launches    ", report.state.num_launches, ", generation ", report.state.generation, ", ",
      FormatNumberOf(report.state.num_restarts, "restart"), " in the last launch\ncheckpoint  ",
      report.checkpoints.step >= 0 ? absl::StrCat("step ", report.checkpoints.step) : "none", "\n");
  for (const std::string& problem : report.checkpoints.Problems()) {
    absl::StrAppend(&text, "            ", problem, "\n");
  }
  if (HasMetrics(report)) {
    absl::StrAppend(&text, "metrics     ", launcher::PrintableText(report.state.metrics), "\n");
  }
  if (report.live) {
    if (report.state.last) absl::StrAppend(&text, LastEventText(*report.state.last));
    for (const std::string& line : rpc::WorkerLines(report.live->workers, !report.state.nodes.empty())) {
      absl::StrAppend(&text, line, "\n");
    }
  } else if (!report.no_answer.empty()) {
    absl::StrAppend(&text, NoAnswerText(report));
  } else if (report.status == "interrupted") {
    const int64_t pid = report.state.launcher_pid;
    absl::StrAppend(&text, "The launcher", pid > 0 ? absl::StrCat(" (process ", pid, ")") : "",
                    " exited without recording an outcome. Continue with: trainctl resume ",
                    ShellQuote(report.path), "\n");
  } else {
    absl::StrAppend(&text, EndText(report));
  }
  return text;
}

}  // namespace

void AddStatus(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("status", "Show a run's progress");
  auto path = std::make_shared<std::string>();
  verb->add_option("RUN", *path, "Run folder (default: runs/latest)");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl status runs/latest");
  verb->callback([&action, path] {
    action = [path](const Output& output) -> absl::StatusOr<ExitCode> {
      TRAINCTL_ASSIGN_OR_RETURN(const StatusReport report, MakeReport(*path));
      if (output.json) {
        std::puts(PrintableJson(ToJson(report)).c_str());
      } else {
        std::fputs(ToText(report).c_str(), stdout);
      }
      return ExitCode::kOk;
    };
  });
}

}  // namespace trainctl::cli
