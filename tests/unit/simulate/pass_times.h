// What the tests of the player share: an order, its costs, and what came of playing it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "simulate/stage_costs.h"
#include "tests/unit/schedule/step_testing.h"

namespace trainctl::simulate {

struct PassTimes {
  double makespan_s = 0;
  std::vector<double> busy_s, bubble_s;  // by rank
  std::vector<int> peak_in_flight;       // by rank
  Played played;
  double max_bubble_s() const { return played.max_bubble_s(); }
  double max_inner_bubble_s() const { return played.max_inner_bubble_s(); }
};

inline PassTimes Times(const schedule::Step& step, const PipelineCosts& costs) {
  absl::StatusOr<Played> played = PlayPasses(step, costs);
  EXPECT_TRUE(played.ok()) << played.status();
  PassTimes times;
  if (!played.ok()) return times;
  times.makespan_s = played->end_s;
  for (size_t r = 0; r < played->classes.size(); ++r) {
    times.busy_s.push_back(played->classes[r].busy_s);
    times.bubble_s.push_back(played->classes[r].bubble_s);
    // Of what the step's programs keep, as they say themselves.
    int in_flight = 0, peak = 0;
    for (const schedule::Instruction& instruction : step.programs[r].instructions) {
      const auto counts = [&](const schedule::Ids& values, schedule::ValueKind kind) {
        return static_cast<int>(std::count_if(values.begin(), values.end(), [&](int value) {
          return step.programs[r].values[static_cast<size_t>(value)].kind == kind;
        }));
      };
      for (schedule::ValueKind kind : {schedule::ValueKind::kSaved, schedule::ValueKind::kQueued})
        in_flight += counts(instruction.writes, kind) - counts(instruction.frees, kind);
      peak = std::max(peak, in_flight);
    }
    times.peak_in_flight.push_back(peak);
  }
  times.played = *std::move(played);
  return times;
}

inline PassTimes Times(schedule::PipelineKind kind, const schedule::PipelineShape& shape,
                       const StageCosts& costs) {
  return Times(schedule::Expanded(kind, shape), {.stages = {costs}});
}

inline int Peak(const PassTimes& times) {
  return *std::max_element(times.peak_in_flight.begin(), times.peak_in_flight.end());
}

}  // namespace trainctl::simulate
