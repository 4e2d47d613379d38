// Times that can be worked out by hand.

#include "schedule/pipeline_simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/status.h"
#include "schedule/pipeline_file.h"
#include "tests/unit/schedule/pipeline_testing.h"

namespace trainctl::schedule {
namespace {

using ::testing::HasSubstr;

TEST(PipelineSimulate, OneRankIsNeverIdle) {
  for (PipelineKind kind : AllKinds()) {
    const PipelineLimits limits = LimitsOf(kind);
    if (limits.even_ranks) continue;
    const PipelineTimes times = Times(kind, {1, 6, limits.min_virtual_stages}, {1, 2, 4});
    EXPECT_EQ(times.makespan_s, 6 * limits.min_virtual_stages * 7) << PipelineKindName(kind);
    EXPECT_EQ(times.max_bubble_s(), 0);
  }
}

TEST(PipelineSimulate, AFusedBackwardCostsWhatItSays) {
  EXPECT_EQ(Times(PipelineKind::kGPipe, {1, 3, 1}, {1, 2, 4, 5}).makespan_s, 3 * (1 + 5));
  EXPECT_EQ(Times(PipelineKind::kZbH1, {1, 3, 1}, {1, 2, 4, 5}).makespan_s, 3 * (1 + 2 + 4));
}

// 2 ranks, 1 micro-batch: F0, over the wire, F1, B1, over the wire, B0.
TEST(PipelineSimulate, AMessageTakesSendAndLatency) {
  const LoweredPipeline lowered = Lowered(PipelineKind::k1F1B, {2, 1, 1});
  PipelineCosts costs = {.stages = {{10, 20, 0}}, .send_s = 3, .latency_s = 0.5};
  EXPECT_EQ(Times(lowered, costs).makespan_s, 2 * 30 + 2 * 3.5);
  costs.overlap_sends = false;
  const PipelineTimes blocking = Times(lowered, costs);
  EXPECT_EQ(blocking.makespan_s, 2 * 30 + 2 * 3.5);
  EXPECT_EQ(blocking.busy_s[0], 33);  // forward, its send, backward
}

// Rank 0 sends two activations one after the other: the second waits for the link, not for the rank.
TEST(PipelineSimulate, ALinkCarriesOneMessageAtATime) {
  const LoweredPipeline lowered = Lowered(PipelineKind::kGPipe, {2, 2, 1});
  PipelineCosts costs = {.stages = {{1, 1, 0}}, .send_s = 10};
  // F0 0-1, sent 1-11; F1 1-2, sent 11-21. Rank 1: F0 11-12, F1 21-22, B0 22-23 sent 23-33,
  // B1 23-24 sent 33-43; rank 0: B1 43-44.
  EXPECT_EQ(Times(lowered, costs).makespan_s, 44);
  costs.overlap_sends = false;
  // Rank 0: F0 0-1, send 1-11, F1 11-12, send 12-22; rank 1: F1 22-23, B0 23-24, send 24-34,
  // B1 34-35, send 35-45; rank 0: B1 45-46.
  EXPECT_EQ(Times(lowered, costs).makespan_s, 46);
}

TEST(PipelineSimulate, StagesMayDiffer) {
  const LoweredPipeline lowered = Lowered(PipelineKind::kGPipe, {3, 1, 1});
  EXPECT_EQ(Times(lowered, {.stages = {{1, 2, 0}, {10, 20, 0}, {100, 200, 0}}}).makespan_s, 333);
}

// The slow stage, the third, is busy for 32 * 6. Before it come two forwards of 1; it waits for 1 of
// the 3 that the last stage takes for its first micro-batch; after it come two backwards of 2.
TEST(PipelineSimulate, TheSlowestStageSetsThePace) {
  const LoweredPipeline lowered = Lowered(PipelineKind::k1F1B, {4, 32, 1});
  EXPECT_EQ(Times(lowered, {.stages = {{1, 1, 1}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}}}).makespan_s,
            32 * 6 + 2 + 1 + 4);
}

TEST(PipelineSimulate, AJoinedPairHidesTheShorterOne) {
  // One rank, no communication: of the two micro-batches of a copy nothing but the pairs changes.
  const LoweredPipeline lowered = Lowered(PipelineKind::kDualPipeV, {1, 4, 2});
  int pairs = 0;
  for (const PipelineInstruction& i : lowered.instructions[0]) pairs += i.joined ? 1 : 0;
  ASSERT_GT(pairs, 0);
  PipelineCosts costs = {.stages = {{3, 2, 2}}};
  EXPECT_EQ(Times(lowered, costs).makespan_s, 4 * 2 * 7);
  costs.joined_overlap = 1;  // max(3, 4) = 4 instead of 7
  EXPECT_EQ(Times(lowered, costs).makespan_s, 4 * 2 * 7 - pairs * 3);
  costs.joined_overlap = 0.5;
  EXPECT_EQ(Times(lowered, costs).makespan_s, 4 * 2 * 7 - pairs * 1.5);
}

TEST(PipelineSimulate, IntervalsTellWhatEachInstructionDid) {
  const LoweredPipeline lowered = Lowered(PipelineKind::kZbH1, {3, 5, 1});
  const PipelineTimes times =
      Times(lowered, {.stages = {{2, 3, 1}}, .send_s = 0.25, .latency_s = 0.125}, true);
  ASSERT_EQ(times.intervals.size(), 3u);
  for (size_t r = 0; r < 3; ++r) {
    ASSERT_EQ(times.intervals[r].size(), lowered.instructions[r].size());
    double busy = 0;
    double free_from = 0;
    for (size_t i = 0; i < times.intervals[r].size(); ++i) {
      if (lowered.instructions[r][i].op > PipelineOp::kBackwardWeight) continue;
      const Interval& interval = times.intervals[r][i];
      EXPECT_GE(interval.start_s, free_from);
      free_from = interval.end_s;
      busy += interval.end_s - interval.start_s;
    }
    EXPECT_EQ(busy, times.busy_s[r]);
    EXPECT_EQ(times.busy_s[r], 5 * 6);
    EXPECT_EQ(times.bubble_s[r], times.makespan_s - busy);
  }
}

// Nothing gets slower when a cost falls and the order stays.
TEST(PipelineSimulate, CheaperIsNeverSlower) {
  for (PipelineKind kind : AllKinds()) {
    const LoweredPipeline lowered = Lowered(kind, {4, 12, LimitsOf(kind).min_virtual_stages});
    const PipelineCosts base = {.stages = {{4, 5, 3}}, .send_s = 2, .latency_s = 1};
    const double before = Times(lowered, base).makespan_s;
    for (int change = 0; change < 7; ++change) {
      PipelineCosts less = base;
      if (change == 0) less.stages[0].forward_s = 3;
      if (change == 1) less.stages[0].input_backward_s = 1;
      if (change == 2) less.stages[0].weight_backward_s = 0;
      if (change == 3) less.send_s = 0.5;
      if (change == 4) less.latency_s = 0;
      if (change == 5) less.joined_overlap = 1;
      if (change == 6) less.stages[0].backward_s = 7;
      EXPECT_LE(Times(lowered, less).makespan_s, before) << PipelineKindName(kind) << " " << change;
    }
  }
}

TEST(PipelineSimulate, RefusesImpossibleCosts) {
  const LoweredPipeline lowered = Lowered(PipelineKind::k1F1B, {2, 2, 1});
  const auto complaint = [&](const PipelineCosts& costs) {
    const absl::Status status = SimulatePipeline(lowered, costs).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage);
    return std::string(status.message());
  };
  EXPECT_THAT(complaint({}), HasSubstr("costs of 0 stages for a pipeline of 2; give 1 or 2"));
  EXPECT_THAT(complaint({.stages = {{1, -1, 1}}}),
              HasSubstr("costs of stage 0 are not finite and non-negative"));
  EXPECT_THAT(complaint({.stages = {{1, 1, 1}, {NAN, 1, 1}}}), HasSubstr("costs of stage 1"));
  EXPECT_THAT(complaint({.stages = {{1, 1, 1}}, .send_s = INFINITY}), HasSubstr("communication costs"));
  EXPECT_THAT(complaint({.stages = {{1, 1, 1}}, .joined_overlap = 1.5}), HasSubstr("joined overlap 1.5"));
  // What the checker would have refused ends in a message as well.
  LoweredPipeline stuck = lowered;
  stuck.instructions[0].clear();
  EXPECT_EQ(ExitCodeFor(SimulatePipeline(stuck, {.stages = {{1, 1, 1}}}).status()), ExitCode::kInternal);
}

}  // namespace
}  // namespace trainctl::schedule
