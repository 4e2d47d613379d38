#include "published/score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"

namespace trainctl::published {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kSkippedPercent = -100;  // a listed row without a price
constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

ScoredRow ScoreRun(const PublishedRun& run, const frameworks::Tuning& tuning) {
  ScoredRow row;
  row.id = run.id;
  row.source = run.source;
  row.reason = run.reason;
  row.measured_memory_gib = run.measured_memory_gib;
  row.measured_step_seconds = run.measured_step_seconds;
  row.memory_error_percent = row.time_error_percent = kNotMeasured;
  row.metric = run.metric;
  row.has_time = run.has_time;
  row.outcome = run.outcome;
  if (!run.workload.has_value()) return row;
  row.framework = run.workload->framework->name;
  frameworks::Workload workload = *run.workload;
  const frameworks::TunedMachine machine(tuning, *workload.device, *workload.node);
  machine.Apply(workload);
  const frameworks::MemoryPrice memory = frameworks::PriceMemory(workload);
  // A device that is full shows no more than it has, where what the allocator could give back is the rest.
  const double capacity = workload.device->memory_bytes.value;
  const bool fits = memory.needed_bytes <= capacity;
  row.predicted_memory_gib =
      (fits ? std::min(memory.Of(run.metric), capacity) : memory.Of(run.metric)) / kGiB;
  // Figures of full devices are rounded to whole units, up too.
  const double full = std::ceil(capacity / kGiB) * kGiB;
  row.upper_memory_gib =
      (fits ? std::min(memory.UpperOf(run.metric), full) : memory.UpperOf(run.metric)) / kGiB;
  row.predicted_step_seconds = frameworks::PriceTime(workload).step_seconds;
  row.status = fits ? ScoreStatus::kScored : ScoreStatus::kRejected;
  if (row.status == ScoreStatus::kRejected) {
    row.reason = absl::StrCat(
        absl::StrFormat("needs %.1f GiB of %.1f GiB", memory.needed_bytes / kGiB, capacity / kGiB),
        row.reason.empty() ? "" : "; ", row.reason);
  }
  row.memory_error_percent = PercentOff(row.predicted_memory_gib, row.measured_memory_gib);
  row.time_error_percent = PercentOff(row.predicted_step_seconds, row.measured_step_seconds);
  return row;
}

std::string SourceOf(const ScoredRow& row) { return SourceRepository(row.source); }
std::string FrameworkOfRow(const ScoredRow& row) { return row.framework; }
using Key = std::string (*)(const ScoredRow&);

// The rows whose key is `name`, or all. `listed`: a row that was skipped counts as 100 % too low.
SourceScore SummarizeRows(const std::string& name, absl::Span<const ScoredRow> rows, Key key, bool all,
                          bool listed) {
  SourceScore score;
  score.source = name;
  std::vector<double> memory, time;
  for (const ScoredRow& row : rows) {
    if (!all && key(row) != name) continue;
    const bool skipped = row.status == ScoreStatus::kSkipped;
    score.scored += row.status == ScoreStatus::kScored;
    score.skipped += skipped;
    score.rejected += row.status == ScoreStatus::kRejected;
    if (!std::isnan(row.memory_error_percent)) memory.push_back(row.memory_error_percent);
    if (!std::isnan(row.time_error_percent)) time.push_back(row.time_error_percent);
    if (skipped) {
      if (listed && row.measured_memory_gib > 0) memory.push_back(kSkippedPercent);
      if (listed && row.has_time) time.push_back(kSkippedPercent);
      continue;
    }
    score.ran += row.ran();
    score.wrongly_rejected += row.ran() && row.status == ScoreStatus::kRejected;
    score.out_of_memory += row.out_of_memory();
    score.missed += row.out_of_memory() && row.status == ScoreStatus::kScored;
  }
  score.memory = Summarize(memory);
  score.time = Summarize(time);
  return score;
}

std::vector<SourceScore> SummarizeBy(Key key, absl::Span<const ScoredRow> rows, bool listed) {
  std::set<std::string> sources;
  for (const ScoredRow& row : rows) sources.insert(key(row));
  std::vector<SourceScore> scores;
  for (const std::string& source : sources) scores.push_back(SummarizeRows(source, rows, key, false, listed));
  scores.push_back(SummarizeRows("all", rows, key, true, listed));
  return scores;
}

CompleteScore ScoreComplete(absl::Span<const ScoredRow> all_rows, absl::Span<const std::string> ids) {
  CompleteScore score;
  score.listed = !ids.empty();
  std::set<std::string> wanted(ids.begin(), ids.end());
  std::vector<ScoredRow> rows;
  for (const ScoredRow& row : all_rows) {
    if (score.listed ? wanted.contains(row.id) : row.status != ScoreStatus::kSkipped) rows.push_back(row);
  }
  for (const ScoredRow& row : rows) wanted.erase(row.id);
  score.absent = static_cast<int64_t>(wanted.size());
  score.rows = static_cast<int64_t>(rows.size());
  score.sources = SummarizeBy(SourceOf, rows, score.listed);
  score.frameworks = SummarizeBy(FrameworkOfRow, rows, score.listed);
  std::vector<double> allocated;
  double headroom = 0;
  int64_t measured = 0;
  for (const ScoredRow& row : rows) {
    const bool skipped = row.status == ScoreStatus::kSkipped;
    if (row.measured_memory_gib > 0) {
      if (frameworks::CountsTensors(row.metric))
        allocated.push_back(skipped ? kSkippedPercent : row.memory_error_percent);
      if (!skipped) {
        ++measured;
        headroom += PercentOff(row.upper_memory_gib, row.measured_memory_gib);
        const bool covered = row.measured_memory_gib <= row.upper_memory_gib;
        score.covered += covered;
        if (!covered) score.above.push_back(row.id);
      }
    }
    if (row.out_of_memory() && row.status == ScoreStatus::kScored) score.missed.push_back(row.id);
    if (row.ran() && row.status == ScoreStatus::kRejected) score.rejected.push_back(row.id);
  }
  score.allocated = Summarize(allocated);
  if (measured > 0) score.mean_headroom_percent = headroom / static_cast<double>(measured);
  return score;
}

}  // namespace

double PercentOff(double predicted, double measured) {
  return measured > 0 ? 100 * (predicted - measured) / measured : kNotMeasured;
}

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

std::string SourceRepository(absl::string_view source) {
  return std::string(source.substr(0, source.find_first_of("@:#")));
}

absl::StatusOr<std::vector<std::string>> ReadIdList(absl::string_view text, absl::string_view what) {
  std::vector<std::string> ids;
  std::set<absl::string_view> seen;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    const absl::string_view id = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (id.empty()) continue;
    if (!seen.insert(id).second)
      return BadDataError(absl::StrCat(what, ":", line_number, ": ", id.substr(0, 60), " is listed twice"));
    ids.emplace_back(id);
  }
  if (ids.empty()) return BadDataError(absl::StrCat(what, ": lists no row; it has one id a line"));
  return ids;
}

Score ScoreRuns(absl::Span<const PublishedRun> runs, const ScoreOptions& options) {
  Score score;
  for (const PublishedRun& run : WithMedians(runs)) score.rows.push_back(ScoreRun(run, options.tuning));
  score.sources = SummarizeBy(SourceOf, score.rows, /*listed=*/false);
  score.complete = ScoreComplete(score.rows, options.complete_ids);
  return score;
}

}  // namespace trainctl::published
