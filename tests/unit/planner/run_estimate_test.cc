#include "planner/run_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace trainctl::planner {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

class RunEstimateTest : public testing::Test {
 protected:
  RunEstimateTest() {
    // 1,000 steps of 64 x 1,000 tokens at 2 s on 8 workers.
    recipe_.train.steps = 1000;
    recipe_.train.batch_sequences = 64;
    recipe_.data.seq_len = 1000;
    plan_.layout.mesh.dp_shard = 8;
    plan_.flops_per_token = 6e9;
    plan_.peak_flops = 1e14;
    candidate_.step_seconds = 2;
    candidate_.memory.at_peak[static_cast<size_t>(schedule::Category::kOptimizer)] = 25 * kGiB;
  }
  RunEstimate Estimate() const { return EstimateRun(plan_, candidate_, recipe_); }
  std::string Answer() const { return AnswerOf(Estimate(), recipe_); }

  recipe::Recipe recipe_;
  plan::Plan plan_;
  plan::Candidate candidate_;
};

TEST_F(RunEstimateTest, SpeedFollowsFromTheStep) {
  const RunEstimate estimate = Estimate();
  EXPECT_DOUBLE_EQ(estimate.tokens_per_second, 32000);
  EXPECT_DOUBLE_EQ(estimate.mfu, 32000 * 6e9 / 8e14);
  EXPECT_EQ(estimate.run_tokens, 64'000'000);
  EXPECT_DOUBLE_EQ(estimate.run_seconds, 2000);
  EXPECT_DOUBLE_EQ(estimate.worker_hours_per_billion_tokens, 1e9 / 32000 * 8 / 3600);
  EXPECT_EQ(Answer(), "2 s a step, 32,000 tokens/s, 24.0 % MFU; 64M tokens take 33.3 minutes");
}

TEST_F(RunEstimateTest, WhatIsNotKnownIsNotSaid) {
  plan_.peak_flops = 0;
  recipe_.train.steps = 0;
  EXPECT_EQ(Answer(), "2 s a step, 32,000 tokens/s");
}

TEST_F(RunEstimateTest, APriceMakesACost) {
  recipe_.plan.price_per_gpu_hour = 2.5;
  EXPECT_DOUBLE_EQ(Estimate().run_dollars, 2000.0 / 3600 * 8 * 2.5);
  EXPECT_THAT(Answer(), HasSubstr("33.3 minutes and cost $11.1"));
  EXPECT_DOUBLE_EQ(Estimate().dollars_per_billion_tokens, 1e9 / 32000 * 8 / 3600 * 2.5);
}

TEST_F(RunEstimateTest, ADeadlineIsMetOrMissed) {
  recipe_.plan.deadline = absl::Minutes(40);
  EXPECT_THAT(Answer(), HasSubstr("; plan.deadline of 40 minutes is met"));
  recipe_.plan.deadline = absl::Seconds(1900);
  EXPECT_THAT(Answer(), HasSubstr("is missed by 100 s"));
}

TEST_F(RunEstimateTest, AMarginIsThatOfRunsThatWereCompared) {
  plan_.hardware = "h100-sxm-80gb";
  EXPECT_EQ(Estimate().margin, 0);  // no run on several GPUs was compared
  plan_.layout.mesh.dp_shard = 1;
  EXPECT_THAT(Answer(), HasSubstr(" (± 4 %)"));
  plan_.hardware = "a100-sxm-80gb";
  EXPECT_EQ(Estimate().margin, 0);
}

TEST_F(RunEstimateTest, FailuresTakeTime) {
  EXPECT_THAT(Answer(), Not(HasSubstr("failures")));
  recipe_.plan.gpu_mtbf = absl::Hours(800);  // of 8 workers: 100 h
  recipe_.plan.restart_time = absl::Hours(1);
  const RunEstimate estimate = Estimate();
  // About an hour in a hundred for restarts, and little for saves of a second.
  EXPECT_GT(estimate.effective_share, 0.97);
  EXPECT_LT(estimate.effective_share, 0.99);
  EXPECT_DOUBLE_EQ(estimate.run_seconds, 2000 / estimate.effective_share);
  EXPECT_THAT(Answer(), HasSubstr(" % of it for failures, restarts and saves"));
}

TEST(FormatSecondsTest, TakesTheUnitOfAPerson) {
  EXPECT_EQ(FormatSeconds(4.2e-5), "42 us");
  EXPECT_EQ(FormatSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(FormatSeconds(11.24), "11.2 s");
  EXPECT_EQ(FormatSeconds(119), "119 s");
  EXPECT_EQ(FormatSeconds(3600), "60 minutes");
  EXPECT_EQ(FormatSeconds(86400), "24 hours");
  EXPECT_EQ(FormatSeconds(12.4 * 86400), "12.4 days");
  EXPECT_EQ(FormatSeconds(std::numeric_limits<double>::infinity()), "for ever");
}

TEST(FormatRateTest, HasThreeDigits) {
  EXPECT_EQ(FormatRate(0.5678), "0.568");
  EXPECT_EQ(FormatRate(99.96), "100");
  EXPECT_EQ(FormatRate(1239), "1,240");
  EXPECT_EQ(FormatRate(1234567), "1,230,000");
}

}  // namespace
}  // namespace trainctl::planner
