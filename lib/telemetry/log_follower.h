// Reads a run's latest numbers from metrics.jsonl and timings.jsonl while a worker is writing them. Parses
// only the lines it needs, so it is fast on long logs, and skips damaged lines. Not thread-safe.
//
//   LogFollower follower(run.metrics_path(), run.timings_path());
//   follower.Update();
//   const RunNumbers& numbers = follower.numbers();
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::telemetry {

struct EvaluatedStep {
  int64_t step = -1;
  double loss = 0;  // may be infinite or NaN
};

// The losses of an evaluation set.
struct EvaluationNumbers {
  EvaluatedStep last;
  std::optional<EvaluatedStep> best;  // step with the lowest finite loss; the first one if several are equal
};

using EvaluationsBySet = std::map<std::string, EvaluationNumbers>;
// Returns the set with the lowest loss, the first set if no loss is finite, or end() if there are no sets.
EvaluationsBySet::const_iterator BestEvaluated(const EvaluationsBySet& evaluations);

// The numbers in the last line of each log. Fields without a value are unknown.
struct RunNumbers {
  // Last step in metrics.jsonl; 0 before training, -1 if there are no lines.
  int64_t step = -1;
  std::optional<double> loss, grad_norm, lr;
  std::optional<int64_t> tokens;
  EvaluationsBySet evaluation;  // losses from all lines of metrics.jsonl
  // The following fields come from timings.jsonl.
  std::optional<double> tokens_per_second, mfu;
  std::optional<double> done_s;       // end of the step, in seconds since the Unix epoch
  std::optional<int64_t> peak_bytes;  // rank 0's peak tensor memory
};

class LogFollower {
 public:
  LogFollower(std::string metrics_path, std::string timings_path);
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;
  ~LogFollower();

  // Reads the lines written since the last call, or all lines if a log was replaced by a new file, which
  // happens on a restart. Returns true if there were any. A log that is missing or unreadable counts as
  // empty.
  bool Update();
  const RunNumbers& numbers() const { return numbers_; }

 private:
  // An open log.
  struct Log {
    std::string path;
    int fd = -1;
    ino_t inode = 0;
    std::string pending = {};  // bytes after the last complete line
  };
  // Calls read_line(line, is_last) for each new complete line. `is_last` is true for the last line of this
  // call.
  template <typename ReadLine>
  bool Follow(Log& log, ReadLine read_line);
  bool Reopen(Log& log);
  void ReadMetrics(absl::string_view line, bool is_last);
  void ReadTimings(absl::string_view line);

  Log metrics_;
  Log timings_;
  RunNumbers numbers_;
};

}  // namespace trainctl::telemetry
