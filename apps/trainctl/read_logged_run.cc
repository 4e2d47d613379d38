#include "apps/trainctl/read_logged_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "apps/trainctl/job_access.h"
#include "base/files.h"
#include "base/json.h"
#include "run/event_text.h"
#include "run/run_list.h"
#include "telemetry/log_reader.h"

namespace trainctl::cli {
namespace {

using report::LoggedRun;
using report::RunEventKind;
using telemetry::LoggedStep;
using telemetry::LogKind;
using telemetry::LogReader;

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();
// Longer lists of a recipe are shown by their ends.
constexpr size_t kMostValueBytes = 160;

std::optional<double> ValueOf(const LoggedStep& line, absl::string_view tag) {
  for (const telemetry::Scalar& scalar : line.scalars) {
    if (scalar.tag == tag) return scalar.value;
  }
  return std::nullopt;
}

absl::Status ReadMetrics(const std::string& path, LoggedRun& run) {
  TRAINCTL_ASSIGN_OR_RETURN(LogReader log, LogReader::Open(path, LogKind::kMetrics));
  std::map<std::string, size_t> sets;
  LoggedStep line;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const bool is_line, log.Next(line));
    if (!is_line) return absl::OkStatus();
    for (const telemetry::Scalar& scalar : line.scalars) {
      absl::string_view set = scalar.tag;
      if (!absl::ConsumePrefix(&set, "eval/")) continue;
      const auto [found, is_new] = sets.try_emplace(std::string(set), run.evaluation.size());
      if (is_new) run.evaluation.push_back({std::string(set), {}});
      run.evaluation[found->second].loss.push_back({line.step, scalar.value});
    }
    if (line.step == 0) continue;  // before training
    run.loss.push_back({line.step, ValueOf(line, "train/loss").value_or(kGap)});
    run.grad_norm.push_back({line.step, ValueOf(line, "train/grad_norm").value_or(kGap)});
    run.lr.push_back({line.step, ValueOf(line, "train/lr").value_or(kGap)});
    run.places.push_back({line.step, ValueOf(line, "train/tokens").value_or(0), kGap});
    if (line.skipped) run.skipped_steps.push_back(line.step);
  }
}

struct StepTime {
  double time_s = 0;  // since 1970, at the step's end
  int64_t step = 0;
};

// Returns when each step was done.
absl::StatusOr<std::vector<StepTime>> ReadTimings(const std::string& path, LoggedRun& run) {
  TRAINCTL_ASSIGN_OR_RETURN(LogReader log, LogReader::Open(path, LogKind::kTimings));
  std::vector<StepTime> done;
  auto place = run.places.begin();
  double seconds = 0;
  LoggedStep line;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const bool is_line, log.Next(line));
    if (!is_line) break;
    run.tokens_per_second.push_back({line.step, ValueOf(line, "speed/tokens_per_second").value_or(kGap)});
    run.step_seconds.push_back({line.step, line.seconds > 0 ? line.seconds : kGap});
    if (const std::optional<double> peak = ValueOf(line, "memory_bytes/tensor_peak")) {
      run.memory.measured_bytes = std::max(run.memory.measured_bytes.value_or(0), *peak);
    }
    if (line.time_s > 0) done.push_back({line.time_s, line.step});
    for (; place != run.places.end() && place->step < line.step; ++place) place->seconds = seconds;
    seconds += line.seconds;
    if (place != run.places.end() && place->step == line.step) (place++)->seconds = seconds;
  }
  for (; place != run.places.end(); ++place) place->seconds = seconds;
  return done;
}

RunEventKind KindOf(const run::JournalEvent& event, bool is_first_launch) {
  switch (event.kind) {
    case run::EventKind::kWorkerExit:
      return RunEventKind::kFailure;
    case run::EventKind::kEnd:
      return event.status == run::RunStatus::kFailed ? RunEventKind::kFailure : RunEventKind::kOther;
    case run::EventKind::kRestart:
      return RunEventKind::kRestart;
    case run::EventKind::kLaunch:
      return is_first_launch ? RunEventKind::kOther : RunEventKind::kRestart;
    case run::EventKind::kChange:
      return RunEventKind::kChange;
    case run::EventKind::kCheckpoint:
      return RunEventKind::kCheckpoint;
    case run::EventKind::kGeneration:
    case run::EventKind::kStop:
    case run::EventKind::kFromScratch:
      break;
  }
  return RunEventKind::kOther;
}

// The logs are cut back to the checkpoint from which a run continues, so the last step before the event is
// that checkpoint's.
int64_t LastStepBefore(const std::vector<StepTime>& done, absl::Time time) {
  const double time_s = absl::ToDoubleSeconds(time - absl::UnixEpoch());
  const auto after = std::upper_bound(done.begin(), done.end(), time_s,
                                      [](double t, const StepTime& step) { return t < step.time_s; });
  return after == done.begin() ? 0 : std::prev(after)->step;
}

absl::Status ReadEvents(const run::RunFolder& folder, const std::vector<StepTime>& done, LoggedRun& run) {
  if (!PathExists(folder.journal_path())) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder.journal_path()));
  TRAINCTL_ASSIGN_OR_RETURN(const run::JournalText journal, run::ParseJournal(text, folder.journal_path()));
  if (run.problem.empty()) run.problem = journal.damage;
  bool is_first_launch = true;
  for (const run::JournalEvent& event : journal.events) {
    if (event.kind == run::EventKind::kFromScratch) {
      // The curves have no earlier steps.
      for (report::RunEvent& earlier : run.events) earlier.step = -1;
      is_first_launch = true;
    }
    report::RunEvent shown;
    shown.kind = KindOf(event, is_first_launch);
    shown.time = absl::FormatTime("%Y-%m-%d %H:%M:%S", event.time, absl::UTCTimeZone());
    shown.step = event.step;
    shown.text = run::EventText(event);
    if (shown.step < 0 && shown.kind != RunEventKind::kOther) shown.step = LastStepBefore(done, event.time);
    if (event.kind == run::EventKind::kLaunch) is_first_launch = false;
    run.events.push_back(std::move(shown));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Json>> ReadJsonFile(const std::string& path) {
  if (!PathExists(path)) return std::nullopt;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  TRAINCTL_ASSIGN_OR_RETURN(Json json, ParseJson(text, path));
  return json;
}

std::optional<double> NumberIn(const Json& object, const std::string& key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

void AddPart(const std::string& name, const Json& value, bool measured, report::RunMemory& memory) {
  if (!value.is_number()) return;
  auto part = std::find_if(memory.parts.begin(), memory.parts.end(),
                           [&name](const report::MemoryPart& one) { return one.name == name; });
  if (part == memory.parts.end()) part = memory.parts.insert(part, report::MemoryPart{name, {}, {}});
  (measured ? part->measured_bytes : part->predicted_bytes) = value.get<double>();
}

// report.json is written at the end; until then plan.json has the prediction.
absl::Status ReadMemory(const run::RunFolder& folder, LoggedRun& run) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::optional<Json> report, ReadJsonFile(folder.path() + "/report.json"));
  if (report && report->is_object()) {
    run.memory.predicted_bytes = NumberIn(*report, "predicted_peak_bytes");
    run.memory.measured_bytes = NumberIn(*report, "measured_peak_bytes");
    run.predicted_step_seconds = NumberIn(*report, "predicted_step_seconds");
    for (const bool measured : {false, true}) {
      const auto parts = report->find(measured ? "measured_at_peak" : "predicted_at_peak");
      if (parts == report->end() || !parts->is_object()) continue;
      for (const auto& [name, bytes] : parts->items()) AddPart(name, bytes, measured, run.memory);
    }
    return absl::OkStatus();
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::optional<Json> plan, ReadJsonFile(folder.plan_path()));
  if (!plan || !plan->is_object() || !plan->contains("predicted")) return absl::OkStatus();
  const Json& predicted = plan->at("predicted");
  run.memory.predicted_bytes = NumberIn(predicted, "peak_bytes");
  if (!predicted.is_object()) return absl::OkStatus();
  for (const auto& [key, bytes] : predicted.items()) {
    absl::string_view name = key;
    if (key != "peak_bytes" && absl::ConsumeSuffix(&name, "_bytes")) {
      AddPart(std::string(name), bytes, /*measured=*/false, run.memory);
    }
  }
  return absl::OkStatus();
}

std::string ValueText(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  const std::string text = FormatJson(value);
  if (text.size() <= kMostValueBytes || !value.is_array()) return text;
  return absl::StrCat(value.size(), " values: ", ValueText(value.front()), " to ", ValueText(value.back()));
}

void Flatten(const Json& value, const std::string& key, LoggedRun& run) {
  if (value.is_object()) {
    for (const auto& [name, inner] : value.items()) {
      Flatten(inner, key.empty() ? name : absl::StrCat(key, ".", name), run);
    }
  } else if (value.is_array() && !value.empty() && value.front().is_object()) {
    for (size_t i = 0; i < value.size(); ++i) Flatten(value[i], absl::StrCat(key, "[", i, "]"), run);
  } else if (key != "schema") {
    run.recipe.emplace_back(key, ValueText(value));
  }
}

}  // namespace

absl::StatusOr<LoggedRun> ReadLoggedRun(const run::RunFolder& folder) {
  LoggedRun run;
  run.path = folder.path();
  run.name = std::filesystem::path(run.path).filename().string();
  TRAINCTL_ASSIGN_OR_RETURN(
      const std::vector<run::RunSummary> summaries,
      run::ListRuns(folder.path(), [](const run::RunFolder& asked, const run::RunState& state) {
        return AskLauncher(asked, state).ok();
      }));
  if (!summaries.empty()) {
    const run::RunSummary& summary = summaries.front();
    run.status = summary.status;
    run.problem = summary.problem;
    run.total_steps = summary.progress.total_steps;
    if (summary.started != absl::InfinitePast()) {
      run.started = absl::FormatTime("%Y-%m-%d %H:%M", summary.started, absl::UTCTimeZone());
    }
  }
  TRAINCTL_RETURN_IF_ERROR(ReadMetrics(folder.metrics_path(), run));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<StepTime> done, ReadTimings(folder.timings_path(), run));
  TRAINCTL_RETURN_IF_ERROR(ReadEvents(folder, done, run));
  TRAINCTL_RETURN_IF_ERROR(ReadMemory(folder, run));
  TRAINCTL_ASSIGN_OR_RETURN(const std::optional<Json> recipe, ReadJsonFile(folder.recipe_path()));
  if (recipe) Flatten(*recipe, "", run);
  return run;
}

}  // namespace trainctl::cli
