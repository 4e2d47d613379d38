// Holds the planner's prices against runs that were measured: `trainctl score`. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "pricing/published.h"

namespace trainctl::pricing {

enum class ScoreStatus : uint8_t {
  kScored,
  kSkipped,   // not enough is known to price it
  kRejected,  // the planner says that it does not fit the device
};
absl::string_view ScoreStatusName(ScoreStatus status);

struct ScoredRow {
  std::string id;
  std::string source;
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
};

struct Score {
  std::vector<ScoredRow> rows;       // in the order of the file
  std::vector<SourceScore> sources;  // by name, then "all"
};

Score ScoreRuns(absl::Span<const PublishedRun> runs);

// The columns of `trainctl score --out`.
std::string ScoreToCsv(const Score& score);
std::string ScoreToJson(const Score& score);

}  // namespace trainctl::pricing
