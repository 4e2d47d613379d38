// Reads the logs of a run back, line by line (see metrics_log.h), as scalars with TensorBoard's names. Not
// thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "telemetry/event_file.h"

namespace trainctl::telemetry {

struct LoggedStep {
  int64_t step = -1;
  double time_s = 0;   // "time" of timings.jsonl: since 1970, at the step's end; 0: not there
  double seconds = 0;  // "seconds" of timings.jsonl: how long the step took
  std::vector<Scalar> scalars;
  std::vector<std::string> changed;  // "changed" of metrics.jsonl
  bool has_evaluation = false;       // metrics.jsonl has "eval", which may have no numbers
  bool skipped = false;              // "skipped" of metrics.jsonl
};

enum class LogKind { kMetrics, kTimings };

// What one line says. Every number becomes a scalar, those within objects too; "nan", "inf" and "-inf" are
// numbers, other strings, null and booleans are left out:
//   {"step":2,"loss":2.5,"eval":{"held-out":2.25}}             train/loss, eval/held-out
//   {"step":2,"seconds":0.5,"memory_bytes":{"tensor_peak":9}}  speed/seconds, memory_bytes/tensor_peak
// Step 0 is before training: of its metrics only those of evaluation mean something. BadDataError "<where>:
// ...".
absl::StatusOr<LoggedStep> ParseLogLine(absl::string_view line, LogKind kind, absl::string_view where);

class LogReader {
 public:
  // A file that is not there has no lines.
  static absl::StatusOr<LogReader> Open(const std::string& path, LogKind kind);
  LogReader(LogReader&& other) noexcept;
  LogReader& operator=(LogReader&& other) = delete;
  ~LogReader();

  // False at the end; a last line without its end is passed over (a crash, or a writer at work). BadDataError
  // names the line that is not of this log, or whose step does not rise.
  absl::StatusOr<bool> Next(LoggedStep& step);

 private:
  LogReader(std::string path, LogKind kind) : path_(std::move(path)), kind_(kind) {}

  std::string path_;
  LogKind kind_;
  int fd_ = -1;
  std::string pending_;
  size_t consumed_ = 0;
  int64_t line_number_ = 0;
  int64_t last_step_ = -1;
};

// The losses of metrics.jsonl, by evaluation set and step. BadDataError if it cannot be read.
using Evaluations = std::map<std::string, std::map<int64_t, double>>;
absl::StatusOr<Evaluations> ReadEvaluations(const std::string& metrics_path);

// True if metrics.jsonl can be read up to the line of `step`, and that line has an evaluation.
bool HasEvaluation(const std::string& metrics_path, int64_t step);

}  // namespace trainctl::telemetry
