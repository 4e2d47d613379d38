#include "apps/trainctl/failure_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/nonfinite_advice.h"
#include "base/files.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "launcher/printable_text.h"
#include "launcher/worker_log.h"
#include "recipe/recipe_json.h"
#include "rpc/worker_lines.h"
#include "run/run_progress.h"

namespace trainctl::cli {
namespace {

constexpr size_t kLastWords = 20;

std::string Advice(const run::RunFolder& run, const run::RunState& state, int64_t checkpoint_step) {
  if (state.exit_code != static_cast<int>(ExitCode::kCheckFailed)) return "";
  const absl::StatusOr<std::string> text = ReadFile(run.recipe_path());
  if (!text.ok()) return "";
  const absl::StatusOr<recipe::Recipe> recipe = recipe::RecipeFromJson(*text, run.recipe_path());
  return recipe.ok() ? NonFiniteAdvice(*recipe, run.path(), checkpoint_step, state.last_step) : "";
}

// "3 of 245 steps; the last checkpoint is of step 2"
std::string DoneText(const FailureReport& report) {
  std::string text = report.step < 1 ? "no step" : absl::StrCat(report.step);
  if (report.step >= 1 && report.total_steps > 0) absl::StrAppend(&text, " of ", report.total_steps);
  if (report.step >= 1) absl::StrAppend(&text, report.total_steps == 1 ? " step" : " steps");
  return absl::StrCat(text, report.checkpoint_step < 0 ? "; there is no checkpoint"
                                                       : absl::StrCat("; the last checkpoint is from step ",
                                                                      report.checkpoint_step));
}

}  // namespace

FailureReport ReportFailure(const run::RunFolder& run, const run::RunState& state) {
  FailureReport report;
  report.run_path = run.path();
  report.message = state.message;
  report.launched = state.started;
  report.ended = state.ended;
  report.num_restarts = state.num_restarts;
  const run::RunProgress progress = run::ReadProgress(run, state.workers_started());
  report.step = progress.step;
  report.total_steps = progress.total_steps;
  report.checkpoint_step = run.NewestCheckpointStep();
  report.advice = Advice(run, state, report.checkpoint_step);
  if (state.failed_rank < 0) return report;
  report.log_path = run.log_path(state.failed_rank);
  // The log may have been begun again a moment before.
  for (const std::string& path : {report.log_path, launcher::WorkerLog::OlderPath(report.log_path)}) {
    for (const std::string& line : run::LastLines(path, kLastWords)) {
      report.log_tail.push_back(launcher::PrintableText(line));
    }
    if (!report.log_tail.empty()) break;
  }
  return report;
}

std::string WhenText(const FailureReport& report) {
  if (report.ended == absl::InfinitePast()) return "";
  std::string text = absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", report.ended, absl::UTCTimeZone());
  if (report.launched != absl::InfinitePast() && report.ended >= report.launched) {
    absl::StrAppend(&text, ", ", rpc::Age(report.ended - report.launched), " after the launch");
  }
  if (report.num_restarts > 0) {
    absl::StrAppend(&text, ", after ", report.num_restarts,
                    report.num_restarts == 1 ? " restart" : " restarts");
  }
  return text;
}

std::string LogAndWayOnText(const FailureReport& report, size_t max_lines) {
  std::string text;
  if (!report.log_path.empty()) {
    absl::StrAppend(&text, "log         ", launcher::PrintableText(report.log_path),
                    report.log_tail.empty() ? ", which is empty\n" : "; its end:\n");
  }
  for (size_t i = report.log_tail.size() - std::min(report.log_tail.size(), max_lines);
       i < report.log_tail.size(); ++i) {
    absl::StrAppend(&text, "  | ", report.log_tail[i], "\n");
  }
  if (!report.advice.empty()) return absl::StrCat(text, report.advice, "\n");
  return absl::StrCat(text, "once the cause is fixed: trainctl resume ", ShellQuote(report.run_path), "\n");
}

std::string FailureText(const FailureReport& report) {
  std::string text = absl::StrCat(launcher::PrintableText(report.message, /*keep_newlines=*/true), "\n");
  if (const std::string when = WhenText(report); !when.empty()) {
    absl::StrAppend(&text, "when        ", when, "\n");
  }
  return absl::StrCat(text, "done        ", DoneText(report), "\n", LogAndWayOnText(report, kLastWords));
}

}  // namespace trainctl::cli
