// How fast a run goes and when it will be done, from the steps that it has done: the one notion of it for the
// launcher's line, `status` and `runs`. Pure; not thread safe.
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
  double tokens_per_second = 0;    // of this step
  std::optional<double> mfu = {};  // of this step; nullopt: unknown
};

class StepPace {
 public:
  // Steps may be left out. One that does not come after the last one (workers that began again from a
  // checkpoint) forgets those before.
  void Add(const DoneStep& step);

  bool empty() const { return steps_.empty(); }
  const DoneStep& last() const { return steps_.back(); }
  // Medians of the last 20 steps added; nullopt: none.
  std::optional<double> TokensPerSecond() const;
  std::optional<double> Mfu() const;
  // From step to step on the wall, evaluations and saves included, over the last 200 added; nullopt with
  // fewer than two.
  std::optional<absl::Duration> PerStep() const;
  // From the last step on; nullopt where PerStep is.
  std::optional<absl::Duration> TimeLeft(int64_t total_steps) const;

 private:
  std::deque<DoneStep> steps_;
};

}  // namespace trainctl::telemetry
