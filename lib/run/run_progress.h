// Reads a run's progress from its stored recipe and its log tails, which may still be growing. Only reads
// files; values that cannot be read remain unset. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "run/run_folder.h"

namespace trainctl::run {

struct RunProgress {
  int64_t step = -1;               // latest completed step; -1 if none
  int64_t total_steps = -1;        // length of the run according to its recipe; -1 if unknown
  int64_t loss_step = -1;          // latest step in metrics.jsonl, which may skip steps; -1 if none
  std::optional<double> loss;      // loss at loss_step; may be infinite or NaN
  int64_t skipped_steps = 0;       // steps up to loss_step whose update was skipped
  std::optional<absl::Time> done;  // time when `step` was completed
  // Computed by telemetry::StepPace from the steps of the current workers only; unset before their first
  // steps. Lines without a time, which earlier versions wrote, count toward the first two.
  std::optional<double> tokens_per_second;
  std::optional<double> mfu;                // unset if unknown
  std::optional<absl::Duration> time_left;  // estimated time from `step` to the end
  std::optional<absl::Duration> per_step;   // time per step
  std::optional<int64_t> memory_bytes;      // peak memory of rank 0's tensors
};

// Reads the progress of `run`. `since` is the time when the current workers were started; earlier steps do
// not count toward speed and time, because the layout or the machine may have changed.
RunProgress ReadProgress(const RunFolder& run, absl::Time since);

// Returns up to `max_lines` of the last complete lines without reading the rest of the file. Returns an empty
// list if the file does not exist.
std::vector<std::string> LastLines(const std::string& path, size_t max_lines);

}  // namespace trainctl::run
