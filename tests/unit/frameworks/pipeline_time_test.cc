#include "frameworks/pipeline_time.h"

#include <gtest/gtest.h>

#include <random>

#include "schedule/build_step.h"
#include "simulate/stage_costs.h"
#include "tests/unit/frameworks/time_job.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

// Vocabulary and transfers of no weight: closed forms hold.
PassTimes Pass(double forward, double input_backward, double weight_backward) {
  PassTimes times;
  times.forward = forward;
  times.input_backward = input_backward;
  times.weight_backward = weight_backward;
  return times;
}

Workload Pipelined(int64_t p, int64_t m, int64_t v = 1) {
  Workload w = SmallJob();
  w.mesh.pp = p;
  w.virtual_stages = v;
  w.global_batch = m;
  w.seq_len = 8;
  return w;
}

// Seconds of a pass, large beside any transfer.
constexpr double kF = 1000, kB = 1400, kW = 800;

TEST(PipelineTime, BubblesAreThePublishedOnes) {
  // Planner notes: 1F1B (p - 1)(F + B), interleaved that over v, ZB-H1 (p - 1)(F + B - 2W) with B whole.
  const auto bubble = [](PipelineKind kind, int64_t v) {
    Workload w = Pipelined(4, 32, v);
    w.pipeline = kind;
    const double share = 1.0 / static_cast<double>(v);
    return TimePipeline(w, std::vector<PassTimes>(static_cast<size_t>(4 * v), Pass(kF, kB, kW).Times(share)),
                        false)
        .waiting_seconds;
  };
  EXPECT_NEAR(bubble(PipelineKind::kGPipe, 1), 3 * (kF + kB + kW), 1);
  EXPECT_NEAR(bubble(PipelineKind::k1F1B, 1), 3 * (kF + kB + kW), 1);
  EXPECT_NEAR(bubble(PipelineKind::kInterleaved1F1B, 2), 3 * (kF + kB + kW) / 2, 1);
  // The step's own end is not hidden by the next step: the first rank's last weight passes remain.
  EXPECT_LT(bubble(PipelineKind::kZbH1, 1), bubble(PipelineKind::k1F1B, 1) - 3 * kW / 2);
}

TEST(PipelineTime, LongStepsAreAsLongAsIfAllWerePlayed) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(100, 2000);
  const std::pair<PipelineKind, int64_t> kinds[] = {
      {PipelineKind::k1F1B, 1}, {PipelineKind::kGPipe, 1}, {PipelineKind::kInterleaved1F1B, 3},
      {PipelineKind::kZbH1, 1}, {PipelineKind::kZbv, 2},   {PipelineKind::kDualPipeV, 2}};
  for (const auto& [kind, v] : kinds) {
    for (const int64_t m : {28, 40}) {
      Workload w = Pipelined(4, m, v);
      w.pipeline = kind;
      std::vector<PassTimes> stages;
      simulate::PipelineCosts costs;
      costs.overlap_sends = true;
      for (int64_t s = 0; s < 4 * v; ++s) {
        const double f = seconds(random);
        stages.push_back(Pass(f, f, f));
        costs.stages.push_back({f, f, f});
      }
      const auto order = schedule::BuildPipeline(kind, w.PipelineShapeFor(m));
      const double all = simulate::PlayPasses(*schedule::ExpandOrder(*order), costs)->end_s;
      const PipelineTimes times = TimePipeline(w, stages, false);
      EXPECT_NEAR(times.busiest.total() + times.waiting_seconds, all, 2e-3 * all)
          << schedule::PipelineKindName(kind) << " " << m;
    }
  }
}

TEST(PipelineTime, JoinedPassesHideExchangesOfTokens) {
  // A stage of 3 s of compute and 2 s of exchanges: where all passes are joined a micro-batch takes 3 s.
  Workload w = Pipelined(4, 64);
  w.pipeline = PipelineKind::kDualPipe;
  PassTimes stage = Pass(kF, kF, kF);
  stage.expert_forward = kF;
  stage.expert_backward = kF;
  const PipelineTimes joined = TimePipeline(w, std::vector<PassTimes>(4, stage), false);
  const double step = joined.busiest.total() + joined.waiting_seconds;
  EXPECT_LT(step, 64 * 3.5 * kF);
  EXPECT_GT(step, 64 * 3 * kF);
  w.pipeline = PipelineKind::k1F1B;
  const PipelineTimes plain = TimePipeline(w, std::vector<PassTimes>(4, stage), false);
  EXPECT_NEAR(plain.busiest.total() + plain.waiting_seconds, 67 * 5 * kF, 1);
}

TEST(PipelineTime, TheBusiestRankHoldsTheStagesOfItsPlacement) {
  // In a V the first rank holds the first and the last stage.
  Workload w = Pipelined(2, 8, 2);
  w.pipeline = PipelineKind::kZbv;
  w.pipeline = PipelineKind::kInterleaved1F1B;
  const std::vector<PassTimes> stages = {Pass(1, 1, 1), Pass(2, 2, 2), Pass(3, 3, 3), Pass(5, 5, 5)};
  EXPECT_NEAR(TimePipeline(w, stages, false).busiest.forward, 8 * 7, 1e-9);
  w.pipeline = PipelineKind::kZbv;
  EXPECT_NEAR(TimePipeline(w, stages, false).busiest.forward, 8 * 6, 1e-9);
}

}  // namespace
}  // namespace trainctl::frameworks
