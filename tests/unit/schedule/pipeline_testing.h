// What the tests of pipeline schedules share: build, lower, check and play in one call.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedule/pipeline_simulate.h"

namespace trainctl::schedule {

inline std::string Name(PipelineKind kind, const PipelineShape& shape) {
  return absl::StrCat(PipelineKindName(kind), " ranks ", shape.ranks, " micro-batches ",
                      shape.num_micro_batches, " stages per rank ", shape.virtual_stages);
}

inline std::vector<PipelineKind> AllKinds() {
  std::vector<PipelineKind> kinds;
  for (int k = 0; k < kNumPipelineKinds; ++k) kinds.push_back(static_cast<PipelineKind>(k));
  return kinds;
}

// Built, lowered and proven; the test fails and an empty schedule comes back otherwise.
inline LoweredPipeline Lowered(PipelineKind kind, const PipelineShape& shape) {
  SCOPED_TRACE(Name(kind, shape));
  absl::StatusOr<PipelineSchedule> schedule = BuildPipeline(kind, shape);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  if (!schedule.ok()) return {};
  absl::StatusOr<LoweredPipeline> lowered = LowerPipeline(*schedule);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  if (!lowered.ok()) return {};
  const absl::StatusOr<PipelineProof> proof = CheckPipeline(*lowered);
  EXPECT_TRUE(proof.ok()) << proof.status();
  return *std::move(lowered);
}

inline PipelineTimes Times(const LoweredPipeline& lowered, const PipelineCosts& costs,
                           bool keep_intervals = false) {
  absl::StatusOr<PipelineTimes> times = SimulatePipeline(lowered, costs, keep_intervals);
  EXPECT_TRUE(times.ok()) << times.status();
  return times.ok() ? *std::move(times) : PipelineTimes{};
}

inline PipelineTimes Times(PipelineKind kind, const PipelineShape& shape, const StageCosts& costs) {
  return Times(Lowered(kind, shape), {.stages = {costs}});
}

inline int Peak(const PipelineTimes& times) {
  return *std::max_element(times.peak_in_flight.begin(), times.peak_in_flight.end());
}

}  // namespace trainctl::schedule
