#include "pricing/score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/csv.h"
#include "base/json.h"
#include "pricing/price_memory.h"
#include "pricing/price_time.h"

namespace trainctl::pricing {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// "owner/repository@commit:file#line" -> "owner/repository".
std::string Repository(const std::string& source) { return source.substr(0, source.find_first_of("@:#")); }

double PercentOff(double predicted, double measured) {
  return measured > 0 ? 100 * (predicted - measured) / measured : kNotMeasured;
}

ScoredRow ScoreRun(const PublishedRun& run) {
  ScoredRow row;
  row.id = run.id;
  row.source = run.source;
  row.reason = run.reason;
  row.measured_memory_gib = run.measured_memory_gib;
  row.measured_step_seconds = run.measured_step_seconds;
  row.memory_error_percent = row.time_error_percent = kNotMeasured;
  if (!run.workload.has_value()) return row;
  const MemoryPrice memory = PriceMemory(*run.workload);
  row.predicted_memory_gib = memory.Of(run.metric) / kGiB;
  row.upper_memory_gib = memory.UpperOf(run.metric) / kGiB;
  row.predicted_step_seconds = PriceTime(*run.workload).step_seconds;
  row.status = memory.device_bytes > run.workload->device->memory_bytes.value ? ScoreStatus::kRejected
                                                                              : ScoreStatus::kScored;
  if (row.status == ScoreStatus::kRejected) {
    row.reason = absl::StrCat(absl::StrFormat("needs %.1f GiB of %.1f GiB", memory.device_bytes / kGiB,
                                              run.workload->device->memory_bytes.value / kGiB),
                              row.reason.empty() ? "" : "; ", row.reason);
  }
  row.memory_error_percent = PercentOff(row.predicted_memory_gib, row.measured_memory_gib);
  row.time_error_percent = PercentOff(row.predicted_step_seconds, row.measured_step_seconds);
  return row;
}

// Repeats of one configuration are held against their median, as one measurement.
std::vector<PublishedRun> WithMedians(absl::Span<const PublishedRun> runs) {
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> measured;
  for (const PublishedRun& run : runs) {
    if (!run.workload.has_value()) continue;
    auto& [memory, time] = measured[run.configuration];
    if (run.measured_memory_gib > 0) memory.push_back(run.measured_memory_gib);
    if (run.measured_step_seconds > 0) time.push_back(run.measured_step_seconds);
  }
  std::vector<PublishedRun> out(runs.begin(), runs.end());
  for (PublishedRun& run : out) {
    if (!run.workload.has_value()) continue;
    const auto& [memory, time] = measured[run.configuration];
    if (run.measured_memory_gib > 0) run.measured_memory_gib = Median(memory);
    if (run.measured_step_seconds > 0) run.measured_step_seconds = Median(time);
  }
  return out;
}

SourceScore SummarizeSource(const std::string& name, absl::Span<const ScoredRow> rows, bool all) {
  SourceScore score;
  score.source = name;
  std::vector<double> memory, time;
  for (const ScoredRow& row : rows) {
    if (!all && Repository(row.source) != name) continue;
    score.scored += row.status == ScoreStatus::kScored;
    score.skipped += row.status == ScoreStatus::kSkipped;
    score.rejected += row.status == ScoreStatus::kRejected;
    if (!std::isnan(row.memory_error_percent)) memory.push_back(row.memory_error_percent);
    if (!std::isnan(row.time_error_percent)) time.push_back(row.time_error_percent);
  }
  score.memory = Summarize(memory);
  score.time = Summarize(time);
  return score;
}

Json ToJson(const ErrorSummary& summary) {
  return {{"count", summary.count},
          {"mean_absolute_percent", summary.mean_absolute},
          {"mean_percent", summary.mean},
          {"median_percent", summary.median},
          {"p95_percent", summary.percentile_95},
          {"worst_percent", summary.worst}};
}

std::string Cell(double value) {
  if (value == 0 || std::isnan(value)) return "";
  return absl::StrFormat("%.5g", value);
}

}  // namespace

absl::string_view ScoreStatusName(ScoreStatus status) {
  switch (status) {
    case ScoreStatus::kScored:
      return "scored";
    case ScoreStatus::kSkipped:
      return "skipped";
    case ScoreStatus::kRejected:
      return "rejected";
  }
  return "";
}

ErrorSummary Summarize(std::vector<double> errors) {
  ErrorSummary summary;
  summary.count = static_cast<int64_t>(errors.size());
  if (errors.empty()) return summary;
  summary.median = Median(errors);
  double sum = 0, absolute = 0;
  for (double error : errors) {
    sum += error;
    absolute += std::abs(error);
    if (std::abs(error) > std::abs(summary.worst)) summary.worst = error;
  }
  const double count = static_cast<double>(errors.size());
  summary.mean = sum / count;
  summary.mean_absolute = absolute / count;
  for (double& error : errors) error = std::abs(error);
  std::sort(errors.begin(), errors.end());
  // The nearest rank: at least 95 % of the rows are no worse.
  const size_t rank = static_cast<size_t>(std::ceil(0.95 * count));
  summary.percentile_95 = errors[std::max<size_t>(rank, 1) - 1];
  return summary;
}

Score ScoreRuns(absl::Span<const PublishedRun> runs) {
  Score score;
  for (const PublishedRun& run : WithMedians(runs)) score.rows.push_back(ScoreRun(run));
  std::vector<std::string> sources;
  for (const ScoredRow& row : score.rows) sources.push_back(Repository(row.source));
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  for (const std::string& source : sources)
    score.sources.push_back(SummarizeSource(source, score.rows, false));
  score.sources.push_back(SummarizeSource("all", score.rows, true));
  return score;
}

std::string ScoreToCsv(const Score& score) {
  std::string out =
      CsvLine({"id", "source", "status", "reason", "predicted_mem_gib", "upper_mem_gib", "measured_mem_gib",
               "mem_error_pct", "predicted_step_s", "measured_step_s", "time_error_pct"});
  for (const ScoredRow& row : score.rows) {
    out += CsvLine({row.id, row.source, std::string(ScoreStatusName(row.status)), row.reason,
                    Cell(row.predicted_memory_gib), Cell(row.upper_memory_gib), Cell(row.measured_memory_gib),
                    Cell(row.memory_error_percent), Cell(row.predicted_step_seconds),
                    Cell(row.measured_step_seconds), Cell(row.time_error_percent)});
  }
  return out;
}

std::string ScoreToJson(const Score& score) {
  Json sources = Json::array();
  for (const SourceScore& source : score.sources) {
    sources.push_back({{"source", source.source},
                       {"scored", source.scored},
                       {"skipped", source.skipped},
                       {"rejected", source.rejected},
                       {"memory", ToJson(source.memory)},
                       {"time", ToJson(source.time)}});
  }
  const Json json = {{"schema", "trainctl.score.v1"}, {"sources", std::move(sources)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trainctl::pricing
