// `trainctl runs`: the runs of a folder, one on a line.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/job_access.h"
#include "apps/trainctl/progress_json.h"
#include "apps/trainctl/text_table.h"
#include "base/json.h"
#include "base/units.h"
#include "launcher/printable_text.h"
#include "run/run_list.h"
#include "telemetry/byte_progress.h"

namespace trainctl::cli {
namespace {

constexpr char kDefaultFolder[] = "runs";

using run::RunSummary;

Json EvaluatedOrNull(const std::optional<telemetry::EvaluatedStep>& evaluated) {
  if (!evaluated.has_value()) return nullptr;
  return {{"loss", NumberOrNull(evaluated->loss)}, {"step", evaluated->step}};
}

Json EvaluationJson(const telemetry::EvaluationsBySet& evaluation) {
  Json json = Json::object();
  for (const auto& [set, losses] : evaluation) {
    json[set] = {{"last", EvaluatedOrNull(losses.last)}, {"best", EvaluatedOrNull(losses.best)}};
  }
  return json;
}

void PrintJson(const std::vector<RunSummary>& runs) {
  Json json = {{"schema", "trainctl.runs.v1"}, {"runs", Json::array()}};
  for (const RunSummary& one : runs) {
    const run::RunProgress& at = one.progress;
    const bool has_time = one.started != absl::InfinitePast();
    json["runs"].push_back(
        {{"name", one.name},
         {"path", one.path},
         {"status", one.status},
         {"problem", one.problem},
         {"started", has_time ? Json(absl::FormatTime(one.started, absl::UTCTimeZone())) : Json(nullptr)},
         {"launches", one.launches},
         {"step", StepOrNull(at.step)},
         {"total_steps", StepOrNull(at.total_steps)},
         {"loss", NumberOrNull(at.loss)},
         {"evaluation", EvaluationJson(one.evaluation)},
         {"tokens_per_second", NumberOrNull(at.tokens_per_second)},
         {"mfu", NumberOrNull(at.mfu)},
         {"seconds_left", SecondsOrNull(at.time_left)},
         {"checkpoint_step", StepOrNull(one.checkpoint_step)}});
  }
  std::puts(PrintableJson(json, 2).c_str());
}

std::string StepText(int64_t step) { return step < 0 ? "-" : absl::StrCat(step); }

// The set with the lowest loss; both columns show it.
std::string LastEvaluation(const telemetry::EvaluationsBySet& evaluation) {
  const auto set = telemetry::BestEvaluated(evaluation);
  return set == evaluation.end() ? "-" : absl::StrFormat("%.4f", set->second.last.loss);
}

std::string BestEvaluation(const telemetry::EvaluationsBySet& evaluation) {
  const auto set = telemetry::BestEvaluated(evaluation);
  if (set == evaluation.end() || !set->second.best.has_value()) return "-";
  return absl::StrFormat("%.4f (step %d)", set->second.best->loss, set->second.best->step);
}

void PrintTable(const std::vector<RunSummary>& runs, bool color) {
  TextTable table({"run", "started (UTC)", "status", "step", "of", "loss", "evaluation", "best evaluation",
                   "tokens/s", "mfu", "left", "checkpoint"},
                  {0, 1, 2});
  for (const RunSummary& one : runs) {
    const run::RunProgress& at = one.progress;
    const bool has_time = one.started != absl::InfinitePast();
    table.Add(
        {launcher::PrintableText(one.name),
         has_time ? absl::FormatTime("%Y-%m-%d %H:%M", one.started, absl::UTCTimeZone()) : "-", one.status,
         StepText(at.step), StepText(at.total_steps),
         at.loss.has_value() ? absl::StrFormat("%.4f", *at.loss) : "-", LastEvaluation(one.evaluation),
         BestEvaluation(one.evaluation),
         at.tokens_per_second.has_value() ? absl::StrFormat("%.0f", *at.tokens_per_second) : "-",
         at.mfu.has_value() ? absl::StrFormat("%.1f%%", 100 * *at.mfu) : "-",
         at.time_left.has_value() ? telemetry::TimeLeft(*at.time_left) : "-", StepText(one.checkpoint_step)},
        one.status == "running");
  }
  table.Print(color);
  for (const RunSummary& one : runs) {
    if (one.problem.empty()) continue;
    std::printf("%s\n", launcher::PrintableText(absl::StrCat(one.name, ": ", one.problem)).c_str());
  }
}

absl::StatusOr<ExitCode> Run(const std::string& folder, const Output& output) {
  std::vector<RunSummary> runs;
  std::error_code ignored;
  // Before the first run there is no runs/, and that is no mistake.
  if (!folder.empty() || std::filesystem::exists(kDefaultFolder, ignored)) {
    TRAINCTL_ASSIGN_OR_RETURN(runs, run::ListRuns(folder.empty() ? kDefaultFolder : folder,
                                                  [](const run::RunFolder& run, const run::RunState& state) {
                                                    return AskLauncher(run, state).ok();
                                                  }));
  }
  if (output.json) {
    PrintJson(runs);
  } else if (runs.empty()) {
    std::printf("there are no runs in the folder %s\n", folder.empty() ? kDefaultFolder : folder.c_str());
  } else {
    PrintTable(runs, output.stdout_color);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddRuns(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("runs", "List the runs in a folder, newest first");
  auto folder = std::make_shared<std::string>();
  verb->add_option("DIR", *folder, "Folder that contains runs, or a single run folder (default: runs)");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl runs");
  verb->callback(
      [&action, folder] { action = [folder](const Output& output) { return Run(*folder, output); }; });
}

}  // namespace trainctl::cli
