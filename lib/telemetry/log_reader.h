// Reads a run's logs (see metrics_log.h) line by line, as scalars named as in TensorBoard. Not thread-safe.
#pragma once

#include <cstddef>
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
  // "time" in timings.jsonl: end of the step, in seconds since the Unix epoch; 0 if absent.
  double time_s = 0;
  // "seconds" in timings.jsonl: duration of the step.
  double seconds = 0;
  std::vector<Scalar> scalars;
  // "changed" in metrics.jsonl.
  std::vector<std::string> changed;
  // Whether the line of metrics.jsonl has an "eval" object, which may contain no numbers.
  bool has_evaluation = false;
  // "skipped" in metrics.jsonl.
  bool skipped = false;
};

inline constexpr size_t kLogReadBytes = size_t{1} << 18;  // bytes that are read at a time

enum class LogKind { kMetrics, kTimings };

// Parses one line. Every number becomes a scalar, including numbers inside nested objects. The strings "nan",
// "inf" and "-inf" count as numbers; other strings, nulls and booleans are ignored:
//   {"step":2,"loss":2.5,"eval":{"held-out":2.25}}             train/loss, eval/held-out
//   {"step":2,"seconds":0.5,"memory_bytes":{"tensor_peak":9}}  speed/seconds, memory_bytes/tensor_peak
// Step 0 precedes training, so only its evaluation is meaningful. A BadDataError begins with "<where>: ".
absl::StatusOr<LoggedStep> ParseLogLine(absl::string_view line, LogKind kind, absl::string_view where);

class LogReader {
 public:
  // Opens a log. A missing file counts as empty.
  static absl::StatusOr<LogReader> Open(const std::string& path, LogKind kind);
  LogReader(LogReader&& other) noexcept;
  LogReader& operator=(LogReader&& other) = delete;
  ~LogReader();

  // Reads the next step, or returns false at the end of the log. Skips an incomplete last line, which a crash
  // or an active writer can leave. A BadDataError names a line that does not belong to this log or whose step
  // does not increase.
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

// Reads the losses in metrics.jsonl, by evaluation set and step. Returns BadDataError if the file cannot be
// read.
using Evaluations = std::map<std::string, std::map<int64_t, double>>;
absl::StatusOr<Evaluations> ReadEvaluations(const std::string& metrics_path);

// Whether metrics.jsonl is readable up to the line of `step` and that line has an evaluation.
bool HasEvaluation(const std::string& metrics_path, int64_t step);

}  // namespace trainctl::telemetry
