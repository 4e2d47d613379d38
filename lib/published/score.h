// Holds the planner's prices against runs that were measured: `trainctl score`. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "published/runs.h"

namespace trainctl::published {

// How far a price is off, in percent of what was measured; NaN where nothing was measured.
double PercentOff(double predicted, double measured);

enum class ScoreStatus : uint8_t {
  kScored,
  kSkipped,   // not enough is known to price it
  kRejected,  // the planner says that it does not fit the device
};
absl::string_view ScoreStatusName(ScoreStatus status);

struct ScoredRow {
  std::string id;
  std::string source;
  std::string framework;  // whose way it was priced; empty for a skipped one
  ScoreStatus status = ScoreStatus::kSkipped;
  std::string reason;
  double predicted_memory_gib = 0;  // in the metric that the source reports
  double upper_memory_gib = 0;
  double measured_memory_gib = 0;  // of repeats of one configuration the median; 0: not published
  double predicted_step_seconds = 0;
  double measured_step_seconds = 0;
  // Signed, in percent of the measured value; NaN where nothing was measured.
  double memory_error_percent = 0;
  double time_error_percent = 0;
  frameworks::MemoryMetric metric = frameworks::MemoryMetric::kReserved;
  bool has_time = false;
  RunOutcome outcome = RunOutcome::kUnknown;
  bool ran() const { return outcome == RunOutcome::kRan; }
  bool out_of_memory() const { return outcome == RunOutcome::kOutOfMemory; }
};

// Of the signed errors of some rows.
struct ErrorSummary {
  int64_t count = 0;
  double mean_absolute = 0;
  double mean = 0;
  double median = 0;         // signed
  double percentile_95 = 0;  // of the absolute errors
  double worst = 0;          // the signed error of the largest absolute value
};
ErrorSummary Summarize(std::vector<double> errors);

struct SourceScore {
  std::string source;  // "owner/repository"; "all" for the last one
  int64_t scored = 0, skipped = 0, rejected = 0;
  ErrorSummary memory, time;
  // Of the rows that can be priced: those that ran and were rejected all the same, and those that ran out of
  // memory and were said to fit.
  int64_t ran = 0, wrongly_rejected = 0;
  int64_t out_of_memory = 0, missed = 0;
};

// The rows that state all that a price needs, as somebody listed them before looking at their errors.
struct CompleteScore {
  bool listed = false;  // false: there was no list, and every row counts that can be priced
  int64_t rows = 0;
  int64_t absent = 0;  // ids of the list that the file does not have
  // A listed row that was skipped is 100 % too low in all that it measured.
  std::vector<SourceScore> sources;     // by name, then "all"
  std::vector<SourceScore> frameworks;  // the same by framework
  ErrorSummary allocated;               // memory of the rows that report what tensors take
  int64_t covered = 0;                  // rows whose measured memory is not above the upper bound
  double mean_headroom_percent = 0;     // of the upper bound over the measured memory, of priced rows
  std::vector<std::string> above;       // ids of rows above the bound
  std::vector<std::string> missed;      // ids of rows that ran out of memory and were said to fit
  std::vector<std::string> rejected;    // ids of rows that ran and were rejected
  const SourceScore& all() const { return sources.back(); }
};

struct Score {
  std::vector<ScoredRow> rows;       // in the order of the file
  std::vector<SourceScore> sources;  // by name, then "all"
  CompleteScore complete;
};

struct ScoreOptions {
  std::vector<std::string> complete_ids;  // empty: no list
  frameworks::Tuning tuning;
};

Score ScoreRuns(absl::Span<const PublishedRun> runs, const ScoreOptions& options = {});

// Repeats of one configuration are held against their median, as one measurement: `runs` with it.
std::vector<PublishedRun> WithMedians(absl::Span<const PublishedRun> runs);

// "owner/repository@commit:file#line" -> "owner/repository".
std::string SourceRepository(absl::string_view source);

// The ids of a list: one a line; empty lines and what follows '#' are left out. BadDataError for a list
// without any, and for an id that is listed twice.
absl::StatusOr<std::vector<std::string>> ReadIdList(absl::string_view text, absl::string_view what);

}  // namespace trainctl::published
