#include "report/run_page.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/json.h"
#include "report/page_assets.h"
#include "report/page_text.h"

namespace trainctl::report {
namespace {

// Points per curve for a number of runs, so that the page stays within a few MB.
constexpr size_t kMostPoints = 2'000;
constexpr size_t kLeastPoints = 250;
constexpr size_t kMostPointsOfAllRuns = 8'000;
constexpr size_t kMostPlaces = 500;
constexpr size_t kMostSkipped = 1'000;
constexpr size_t kMostEvents = 1'000;
constexpr size_t kPaceSteps = 50;

// Six digits, which is more than a chart shows.
Json Rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(absl::StrFormat("%.6g", value).c_str(), nullptr);
}
Json RoundedOrNull(const std::optional<double>& value) { return value ? Rounded(*value) : Json(nullptr); }

// Steps as differences to the one before.
Json EncodeCurve(const Curve& curve) {
  Json steps = Json::array(), values = Json::array();
  int64_t last = 0;
  for (const CurvePoint& point : curve) {
    steps.push_back(point.step - std::exchange(last, point.step));
    values.push_back(Rounded(point.value));
  }
  return {{"steps", std::move(steps)}, {"values", std::move(values)}};
}

template <typename T>
std::vector<T> EvenlyChosen(const std::vector<T>& all, size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> chosen;
  for (size_t i = 0; i < most; ++i) chosen.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return chosen;
}

Json EncodePlaces(const std::vector<StepPlace>& places) {
  Json steps = Json::array(), tokens = Json::array(), seconds = Json::array();
  for (const StepPlace& place : EvenlyChosen(places, kMostPlaces)) {
    steps.push_back(place.step);
    tokens.push_back(Rounded(place.tokens));
    seconds.push_back(Rounded(place.seconds));
  }
  return {{"steps", std::move(steps)}, {"tokens", std::move(tokens)}, {"seconds", std::move(seconds)}};
}

const char* KindName(RunEventKind kind) {
  switch (kind) {
    case RunEventKind::kOther:
      return "";
    case RunEventKind::kFailure:
      return "failure";
    case RunEventKind::kRestart:
      return "restart";
    case RunEventKind::kChange:
      return "change";
    case RunEventKind::kCheckpoint:
      return "checkpoint";
  }
  return "";
}

// The newest events, and of older ones those that are not checkpoints.
Json EncodeEvents(const std::vector<RunEvent>& events) {
  size_t surplus = events.size() > kMostEvents ? events.size() - kMostEvents : 0;
  std::vector<const RunEvent*> kept;
  for (const RunEvent& event : events) {
    if (surplus > 0 && event.kind == RunEventKind::kCheckpoint) {
      --surplus;
    } else {
      kept.push_back(&event);
    }
  }
  Json json = Json::array();
  for (size_t i = kept.size() > kMostEvents ? kept.size() - kMostEvents : 0; i < kept.size(); ++i) {
    json.push_back({{"kind", KindName(kept[i]->kind)},
                    {"time", kept[i]->time},
                    {"step", kept[i]->step},
                    {"text", kept[i]->text}});
  }
  return json;
}

Json EncodeMemory(const RunMemory& memory) {
  Json parts = Json::array();
  for (const MemoryPart& part : memory.parts) {
    parts.push_back({{"name", part.name},
                     {"predicted", RoundedOrNull(part.predicted_bytes)},
                     {"measured", RoundedOrNull(part.measured_bytes)}});
  }
  return {{"predicted", RoundedOrNull(memory.predicted_bytes)},
          {"measured", RoundedOrNull(memory.measured_bytes)},
          {"parts", std::move(parts)}};
}

Json EncodeRun(const LoggedRun& run, size_t most) {
  const RunFigures figures = FiguresOf(run);
  Json evaluation = Json::array();
  for (const EvaluationCurve& set : run.evaluation) {
    Json curve = EncodeCurve(ThinCurve(set.loss, most));
    curve["name"] = set.name;
    evaluation.push_back(std::move(curve));
  }
  return {{"name", run.name},
          {"path", run.path},
          {"status", run.status},
          {"problem", run.problem},
          {"started", run.started},
          {"step", figures.step},
          {"total_steps", run.total_steps},
          {"tokens", Rounded(figures.tokens)},
          {"last_loss", RoundedOrNull(figures.loss)},
          {"best",
           {{"loss", RoundedOrNull(figures.best_evaluation)},
            {"step", figures.best_evaluation_step},
            {"set", figures.best_evaluation_set}}},
          {"pace", RoundedOrNull(figures.tokens_per_second)},
          {"step_s", RoundedOrNull(figures.step_seconds)},
          {"predicted_step_s", RoundedOrNull(run.predicted_step_seconds)},
          {"skipped", EvenlyChosen(run.skipped_steps, kMostSkipped)},
          {"num_skipped", run.skipped_steps.size()},
          {"places", EncodePlaces(run.places)},
          {"loss", EncodeCurve(ThinCurve(run.loss, most))},
          {"smooth", EncodeCurve(ThinCurve(SmoothCurve(run.loss), most))},
          {"evaluation", std::move(evaluation)},
          {"lr", EncodeCurve(ThinCurve(run.lr, most))},
          {"grad_norm", EncodeCurve(ThinCurve(run.grad_norm, most))},
          {"tokens_per_second", EncodeCurve(ThinCurve(run.tokens_per_second, most))},
          {"seconds", EncodeCurve(ThinCurve(run.step_seconds, most))},
          {"memory", EncodeMemory(run.memory)},
          {"events", EncodeEvents(run.events)}};
}

// Keys whose values differ, in the order of the first run that has them: key, then a value per run.
Json EncodeDifferences(const std::vector<LoggedRun>& runs) {
  std::vector<std::string> keys;
  std::map<std::string, std::vector<std::string>> values;
  for (size_t r = 0; r < runs.size(); ++r) {
    for (const auto& [key, value] : runs[r].recipe) {
      auto [found, is_new] = values.try_emplace(key, runs.size());
      if (is_new) keys.push_back(key);
      found->second[r] = value;
    }
  }
  Json rows = Json::array();
  for (const std::string& key : keys) {
    const std::vector<std::string>& row = values[key];
    if (std::set<std::string>(row.begin(), row.end()).size() > 1)
      rows.push_back({{"key", key}, {"values", row}});
  }
  return rows;
}

std::optional<double> MedianOfLast(const Curve& curve, size_t most) {
  std::vector<double> values;
  for (auto point = curve.rbegin(); point != curve.rend() && values.size() < most; ++point) {
    if (std::isfinite(point->value)) values.push_back(point->value);
  }
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

RunFigures FiguresOf(const LoggedRun& run) {
  RunFigures figures;
  if (!run.places.empty()) {
    figures.step = run.places.back().step;
    figures.tokens = run.places.back().tokens;
  }
  figures.loss = MedianOfLast(run.loss, 1);
  for (const EvaluationCurve& set : run.evaluation) {
    for (const CurvePoint& point : set.loss) {
      if (!std::isfinite(point.value) || point.value >= figures.best_evaluation.value_or(HUGE_VAL)) continue;
      figures.best_evaluation = point.value;
      figures.best_evaluation_step = point.step;
      figures.best_evaluation_set = set.name;
    }
  }
  figures.tokens_per_second = MedianOfLast(run.tokens_per_second, kPaceSteps);
  figures.step_seconds = MedianOfLast(run.step_seconds, kPaceSteps);
  return figures;
}

std::string RunPage(const RunPageInput& input) {
  const size_t num_runs = std::max<size_t>(1, input.runs.size());
  const size_t most = std::clamp(kMostPointsOfAllRuns / num_runs, kLeastPoints, kMostPoints);
  const std::string title =
      input.runs.size() == 1 ? input.runs[0].name : absl::StrCat(input.runs.size(), " runs");
  Json data = {{"title", title}, {"runs", Json::array()}, {"differences", EncodeDifferences(input.runs)}};
  for (const LoggedRun& run : input.runs) data["runs"].push_back(EncodeRun(run, most));
  // In one pass, so that nothing that is put in is taken for a place to put something.
  return absl::StrReplaceAll(kRunPageHtml, {{"{{title}}", EscapedHtml(title)},
                                            {"{{style}}", absl::StrCat(kPageCss, kRunPageCss)},
                                            {"{{data}}", ScriptSafe(data)},
                                            {"{{script}}", absl::StrCat(kPagePartsJs, kRunPageJs)}});
}

}  // namespace trainctl::report
