// Times that can be worked out by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/status.h"
#include "tests/unit/simulate/pass_times.h"

namespace trainctl::simulate {
namespace {

using schedule::AllKinds;
using schedule::Expanded;
using schedule::LimitsOf;
using schedule::PipelineKind;
using schedule::PipelineKindName;
using schedule::PipelineLimits;
using schedule::Step;

using ::testing::HasSubstr;

TEST(StepPlay, OneRankIsNeverIdle) {
  for (PipelineKind kind : AllKinds()) {
    const PipelineLimits limits = LimitsOf(kind);
    if (limits.even_ranks) continue;
    const PassTimes times = Times(kind, {1, 6, limits.min_virtual_stages}, {1, 2, 4});
    EXPECT_EQ(times.makespan_s, 6 * limits.min_virtual_stages * 7) << PipelineKindName(kind);
    EXPECT_EQ(times.max_bubble_s(), 0);
  }
}

TEST(StepPlay, AFusedBackwardCostsWhatItSays) {
  EXPECT_EQ(Times(PipelineKind::kGPipe, {1, 3, 1}, {1, 2, 4, 5}).makespan_s, 3 * (1 + 5));
  EXPECT_EQ(Times(PipelineKind::kZbH1, {1, 3, 1}, {1, 2, 4, 5}).makespan_s, 3 * (1 + 2 + 4));
}

// 2 ranks, 1 micro-batch: F0, over the wire, F1, B1, over the wire, B0.
TEST(StepPlay, AMessageTakesSendAndLatency) {
  const Step step = Expanded(PipelineKind::k1F1B, {2, 1, 1});
  PipelineCosts costs = {.stages = {{10, 20, 0}}, .send_s = 3, .latency_s = 0.5};
  EXPECT_EQ(Times(step, costs).makespan_s, 2 * 30 + 2 * 3.5);
  costs.overlap_sends = false;
  const PassTimes blocking =
      Times(Expanded(PipelineKind::k1F1B, {2, 1, 1}, /*sends_on_compute=*/true), costs);
  EXPECT_EQ(blocking.makespan_s, 2 * 30 + 2 * 3.5);
  EXPECT_EQ(blocking.busy_s[0], 33);  // forward, its send, backward
}

// Rank 0 sends two activations one after the other: the second waits for the link, not for the rank.
TEST(StepPlay, ALinkCarriesOneMessageAtATime) {
  const Step step = Expanded(PipelineKind::kGPipe, {2, 2, 1});
  PipelineCosts costs = {.stages = {{1, 1, 0}}, .send_s = 10};
  // F0 0-1, sent 1-11; F1 1-2, sent 11-21. Rank 1: F0 11-12, F1 21-22, B0 22-23 sent 23-33,
  // B1 23-24 sent 33-43; rank 0: B1 43-44.
  EXPECT_EQ(Times(step, costs).makespan_s, 44);
  costs.overlap_sends = false;
  // Rank 0: F0 0-1, send 1-11, F1 11-12, send 12-22; rank 1: F1 22-23, B0 23-24, send 24-34,
  // B1 34-35, send 35-45; rank 0: B1 45-46.
  EXPECT_EQ(Times(Expanded(PipelineKind::kGPipe, {2, 2, 1}, /*sends_on_compute=*/true), costs).makespan_s,
            46);
}

TEST(StepPlay, StagesMayDiffer) {
  const Step step = Expanded(PipelineKind::kGPipe, {3, 1, 1});
  EXPECT_EQ(Times(step, {.stages = {{1, 2, 0}, {10, 20, 0}, {100, 200, 0}}}).makespan_s, 333);
}

// The slow stage, the third, is busy for 32 * 6. Before it come two forwards of 1; it waits for 1 of
// the 3 that the last stage takes for its first micro-batch; after it come two backwards of 2.
TEST(StepPlay, TheSlowestStageSetsThePace) {
  const Step step = Expanded(PipelineKind::k1F1B, {4, 32, 1});
  EXPECT_EQ(Times(step, {.stages = {{1, 1, 1}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}}}).makespan_s,
            32 * 6 + 2 + 1 + 4);
}

TEST(StepPlay, AJoinedPairHidesTheShorterOne) {
  // One rank, no communication: of the two micro-batches of a copy nothing but the pairs changes.
  const Step step = Expanded(PipelineKind::kDualPipeV, {1, 4, 2});
  int pairs = 0;
  for (const schedule::Instruction& i : step.programs[0].instructions) pairs += i.joined ? 1 : 0;
  ASSERT_GT(pairs, 0);
  PipelineCosts costs = {.stages = {{3, 2, 2}}};
  EXPECT_EQ(Times(step, costs).makespan_s, 4 * 2 * 7);
  costs.joined_overlap = 1;  // max(3, 4) = 4 instead of 7
  EXPECT_EQ(Times(step, costs).makespan_s, 4 * 2 * 7 - pairs * 3);
  costs.joined_overlap = 0.5;
  EXPECT_EQ(Times(step, costs).makespan_s, 4 * 2 * 7 - pairs * 1.5);
}

TEST(StepPlay, TimesTellWhatEachInstructionDid) {
  const Step step = Expanded(PipelineKind::kZbH1, {3, 5, 1});
  const PassTimes times = Times(step, {.stages = {{2, 3, 1}}, .send_s = 0.25, .latency_s = 0.125});
  ASSERT_EQ(times.played.classes.size(), 3u);
  for (size_t r = 0; r < 3; ++r) {
    const std::vector<InstructionTime>& list = times.played.classes[r].times;
    ASSERT_EQ(list.size(), step.programs[r].instructions.size());
    double busy = 0;
    double free_from = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      if (!RunsBlock(step.programs[r].instructions[i].op)) continue;
      EXPECT_GE(list[i].begin_s, free_from);
      free_from = list[i].end_s();
      busy += list[i].seconds;
    }
    EXPECT_EQ(busy, times.busy_s[r]);
    EXPECT_EQ(times.busy_s[r], 5 * 6);
    EXPECT_EQ(times.bubble_s[r], times.makespan_s - busy);
  }
}

// Nothing gets slower when a cost falls and the order stays.
TEST(StepPlay, CheaperIsNeverSlower) {
  for (PipelineKind kind : AllKinds()) {
    const Step step = Expanded(kind, {4, 12, LimitsOf(kind).min_virtual_stages});
    const PipelineCosts base = {.stages = {{4, 5, 3}}, .send_s = 2, .latency_s = 1};
    const double before = Times(step, base).makespan_s;
    for (int change = 0; change < 7; ++change) {
      PipelineCosts less = base;
      if (change == 0) less.stages[0].forward_s = 3;
      if (change == 1) less.stages[0].input_backward_s = 1;
      if (change == 2) less.stages[0].weight_backward_s = 0;
      if (change == 3) less.send_s = 0.5;
      if (change == 4) less.latency_s = 0;
      if (change == 5) less.joined_overlap = 1;
      if (change == 6) less.stages[0].backward_s = 7;
      EXPECT_LE(Times(step, less).makespan_s, before) << PipelineKindName(kind) << " " << change;
    }
  }
}

// The loss meets in two groups, the norm in the first one again.
TEST(StepPlay, ThoseWhoMeetBeginTogether) {
  Step step;
  for (int group = 0; group < 2; ++group)
    step.groups.push_back({layout::Axis::kPp, schedule::kComputeStream, {0, 1}});
  for (int c = 0; c < 2; ++c) {
    schedule::Program& program = step.programs.emplace_back();
    program.streams = {{"compute"}};
    program.instructions = {{.op = schedule::Op::kForward},
                            {.op = schedule::Op::kReduceLoss, .groups = {0, 1}},
                            {.op = schedule::Op::kGradNorm, .groups = {0}}};
  }
  const auto seconds = [](int own_class, const schedule::Instruction& instruction) -> double {
    if (instruction.op == schedule::Op::kForward) return own_class == 0 ? 5 : 3;
    return own_class == 0 ? 1 : 2;
  };
  const absl::StatusOr<Played> played = Play(step, seconds);
  ASSERT_TRUE(played.ok()) << played.status();
  for (size_t c = 0; c < 2; ++c) {
    const std::vector<InstructionTime>& times = played->classes[c].times;
    ASSERT_EQ(times.size(), 3u);
    EXPECT_EQ(times[1].begin_s, 5);
    EXPECT_EQ(times[2].begin_s, 5 + 2);
  }
  EXPECT_EQ(played->end_s, 9);
  EXPECT_EQ(played->classes[0].busy_s, 7);
  EXPECT_EQ(played->classes[1].busy_s, 7);
}

TEST(StepPlay, AListMadeOnceEndsAsTheStepDoes) {
  for (PipelineKind kind : AllKinds()) {
    const auto order = schedule::BuildPipeline(kind, {4, 12, LimitsOf(kind).min_virtual_stages});
    ASSERT_TRUE(order.ok()) << order.status();
    for (const bool sends_on_compute : {false, true}) {
      const auto passes = MakePassList(*order, sends_on_compute);
      ASSERT_TRUE(passes.ok()) << passes.status();
      const absl::StatusOr<Step> step = ExpandOrder(*order, sends_on_compute);
      ASSERT_TRUE(step.ok()) << step.status();
      for (const double send_s : {0.0, 0.3}) {
        const PipelineCosts costs = {.stages = {{1.1, 0.7, 0.4, 1.3}},
                                     .send_s = send_s,
                                     .latency_s = 0.01,
                                     .overlap_sends = !sends_on_compute,
                                     .joined_overlap = 0.25};
        const absl::StatusOr<double> end_s = PlayPassesToEnd(*passes, costs);
        ASSERT_TRUE(end_s.ok()) << end_s.status();
        EXPECT_EQ(*end_s, Times(*step, costs).makespan_s) << PipelineKindName(kind);
      }
    }
  }
}

TEST(StepPlay, RefusesImpossibleCosts) {
  const Step step = Expanded(PipelineKind::k1F1B, {2, 2, 1});
  const auto complaint = [&](const PipelineCosts& costs) {
    const absl::Status status = PlayPasses(step, costs).status();
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
  Step stuck = step;
  stuck.programs[0].instructions.clear();
  EXPECT_EQ(ExitCodeFor(PlayPasses(stuck, {.stages = {{1, 1, 1}}}).status()), ExitCode::kInternal);
}

}  // namespace
}  // namespace trainctl::simulate
