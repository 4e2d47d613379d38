// Computes a run's speed and remaining time from its completed steps. Used by the launcher's progress line,
// `status` and `runs`. Has no side effects. Not thread-safe.
//
//   StepPace pace;
//   pace.Add({.step = 12, .done = absl::Now(), .tokens_per_second = 9000});
//   const std::optional<absl::Duration> left = pace.TimeLeft(400);
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/time/time.h"

namespace trainctl::telemetry {

struct DoneStep {
  int64_t step = 0;
  absl::Time done;
  double tokens_per_second = 0;    // speed of this step
  std::optional<double> mfu = {};  // MFU of this step; nullopt if unknown
};

class StepPace {
 public:
  // Adds a step. Steps may be skipped. If `step` is not greater than the last step, which happens when
  // workers restart from a checkpoint, discards all earlier steps.
  void Add(const DoneStep& step);

  // Medians over the last 20 steps; nullopt if there are no values.
  std::optional<double> TokensPerSecond() const;
  std::optional<double> Mfu() const;
  // Mean wall-clock time per step, including evaluations and saves, over the last 200 steps; nullopt if there
  // are fewer than two steps.
  std::optional<absl::Duration> PerStep() const;
  // Time remaining after the last step; nullopt if PerStep() is nullopt.
  std::optional<absl::Duration> TimeLeft(int64_t total_steps) const;

 private:
  std::deque<DoneStep> steps_;
};

}  // namespace trainctl::telemetry
