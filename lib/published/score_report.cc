#include "published/score_report.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/csv.h"
#include "base/json.h"

namespace trainctl::published {
namespace {

Json ToJson(const ErrorSummary& summary) {
  return {{"count", summary.count},
          {"mean_absolute_percent", summary.mean_absolute},
          {"mean_percent", summary.mean},
          {"median_percent", summary.median},
          {"p95_percent", summary.percentile_95},
          {"worst_percent", summary.worst}};
}

Json ToJson(absl::Span<const SourceScore> scores) {
  Json sources = Json::array();
  for (const SourceScore& source : scores) {
    sources.push_back({{"source", source.source},
                       {"scored", source.scored},
                       {"skipped", source.skipped},
                       {"rejected", source.rejected},
                       {"memory", ToJson(source.memory)},
                       {"time", ToJson(source.time)},
                       {"ran", source.ran},
                       {"wrongly_rejected", source.wrongly_rejected},
                       {"out_of_memory", source.out_of_memory},
                       {"out_of_memory_missed", source.missed}});
  }
  return sources;
}

Json ToJson(const CompleteScore& complete) {
  return {{"listed", complete.listed},
          {"rows", complete.rows},
          {"absent", complete.absent},
          {"sources", ToJson(complete.sources)},
          {"frameworks", ToJson(complete.frameworks)},
          {"allocated_memory", ToJson(complete.allocated)},
          {"below_upper_bound", complete.covered},
          {"above_upper_bound", complete.above},
          {"mean_headroom_percent", complete.mean_headroom_percent},
          {"out_of_memory_missed", complete.missed},
          {"wrongly_rejected", complete.rejected}};
}

Json ToJson(const Ranking& ranking) {
  Json sweeps = Json::array();
  for (const Sweep& sweep : ranking.sweeps) {
    Json candidates = Json::array();
    for (const SweepCandidate& c : sweep.candidates) {
      candidates.push_back({{"mapping", c.mapping},
                            {"ids", c.ids},
                            {"predicted", c.predicted},
                            {"measured", c.out_of_memory ? Json(nullptr) : Json(c.measured)},
                            {"fits", c.fits},
                            {"out_of_memory", c.out_of_memory}});
    }
    sweeps.push_back({{"kind", std::string(SweepKindName(sweep.kind))},
                      {"source", sweep.source},
                      {"what", sweep.what},
                      {"chosen", sweep.chosen},
                      {"best", sweep.best},
                      {"regret_percent", sweep.regret_percent},
                      {"pairs", sweep.pairs},
                      {"concordant", sweep.concordant},
                      {"discordant", sweep.discordant},
                      {"candidates", std::move(candidates)}});
  }
  Json summaries = Json::array();
  for (const RankingSummary& s : ranking.summaries) {
    summaries.push_back({{"kind", std::string(SweepKindName(s.kind))},
                         {"source", s.source},
                         {"sweeps", s.sweeps},
                         {"within_3_percent", s.good},
                         {"mean_regret_percent", s.mean_regret_percent},
                         {"worst_regret_percent", s.worst_regret_percent},
                         {"pairs", s.pairs},
                         {"kendall_tau", std::isnan(s.kendall_tau) ? Json(nullptr) : Json(s.kendall_tau)}});
  }
  return {{"summaries", std::move(summaries)}, {"sweeps", std::move(sweeps)}};
}

Json ToJson(const frameworks::Tuning& tuning) {
  Json json = Json::object();
  for (const auto& [name, member] : frameworks::TuningConstants()) json[name] = tuning.*member;
  return json;
}

Json ToJson(absl::Span<const LeftOut> left_out) {
  Json sources = Json::array();
  for (const LeftOut& left : left_out) {
    sources.push_back({{"source", left.source},
                       {"tuning", ToJson(left.tuning)},
                       {"memory_before", ToJson(left.memory_before)},
                       {"memory_after", ToJson(left.memory_after)},
                       {"time_before", ToJson(left.time_before)},
                       {"time_after", ToJson(left.time_after)}});
  }
  return sources;
}

std::string Dump(const Json& json) { return FormatJson(json, 2) + "\n"; }

// Empty where nothing was measured.
std::string ErrorCell(double value) { return std::isnan(value) ? "" : absl::StrFormat("%.5g", value); }
// Empty for 0, which stands for what is not known.
std::string Cell(double value) {
  if (value == 0 || std::isnan(value)) return "";
  return absl::StrFormat("%.5g", value);
}

}  // namespace

std::string ScoreToCsv(const Score& score) {
  std::string out =
      CsvLine({"id", "source", "status", "reason", "predicted_mem_gib", "upper_mem_gib", "measured_mem_gib",
               "mem_error_pct", "predicted_step_s", "measured_step_s", "time_error_pct"});
  for (const ScoredRow& row : score.rows) {
    out += CsvLine({row.id, row.source, std::string(ScoreStatusName(row.status)), row.reason,
                    Cell(row.predicted_memory_gib), Cell(row.upper_memory_gib), Cell(row.measured_memory_gib),
                    ErrorCell(row.memory_error_percent), Cell(row.predicted_step_seconds),
                    Cell(row.measured_step_seconds), ErrorCell(row.time_error_percent)});
  }
  return out;
}

std::string ScoreToJson(const Score& score, const Ranking* ranking, absl::Span<const LeftOut> left_out) {
  Json json = {{"schema", "trainctl.score.v1"},
               {"sources", ToJson(score.sources)},
               {"complete", ToJson(score.complete)}};
  if (ranking != nullptr) json["ranking"] = ToJson(*ranking);
  if (!left_out.empty()) json["leave_one_out"] = ToJson(left_out);
  return Dump(json);
}

std::string CalibrationToJson(const Calibration& calibration) {
  return Dump({{"schema", "trainctl.calibration.v1"},
               {"tuning", ToJson(calibration.profile.tuning)},
               {"devices", calibration.profile.devices},
               {"timed", calibration.timed},
               {"reserved", calibration.reserved},
               {"memory_before", ToJson(calibration.memory_before)},
               {"memory_after", ToJson(calibration.memory_after)},
               {"time_before", ToJson(calibration.time_before)},
               {"time_after", ToJson(calibration.time_after)}});
}

}  // namespace trainctl::published
