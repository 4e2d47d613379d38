// How far a run is: from its stored recipe and the ends of its logs, which it may be writing. Only reads, and
// what cannot be read is left out. Thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "run/run_folder.h"

namespace trainctl::run {

struct RunProgress {
  int64_t step = -1;               // the last one that is done; -1: none
  int64_t total_steps = -1;        // of the stored recipe; -1: unknown
  int64_t loss_step = -1;          // the last one in metrics.jsonl, which may leave some out; -1: none
  std::optional<double> loss;      // of loss_step; may be infinite or not a number
  std::optional<absl::Time> done;  // when `step` was
  std::optional<double> tokens_per_second;  // telemetry::StepPace, as the next two
  std::optional<double> mfu;                // where it is known
  std::optional<absl::Duration> time_left;  // after `step`, at the pace since `since`
  std::optional<absl::Duration> per_step;   // likewise
  std::optional<int64_t> memory_bytes;      // tensors of rank 0 at their peak
};

// `since`: when the workers that are at work were started; what was done before has another pace.
RunProgress ReadProgress(const RunFolder& run, absl::Time since);

// The last lines that are whole, at most `max_lines`, without reading the rest of the file; none where there
// is no such file.
std::vector<std::string> LastLines(const std::string& path, size_t max_lines);

}  // namespace trainctl::run
