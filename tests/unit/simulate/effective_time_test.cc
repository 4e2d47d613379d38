#include "simulate/effective_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace trainctl::simulate {
namespace {

TEST(EffectiveTime, WithoutFailuresOnlyTheStallsCount) {
  const EffectiveTime nothing = PriceEffectiveTime(2, 8, {});
  EXPECT_DOUBLE_EQ(nothing.step_seconds, 2);
  EXPECT_DOUBLE_EQ(nothing.share_of_time, 1);
  const EffectiveTime stalls = PriceEffectiveTime(
      2, 8, {.checkpoint_stall_seconds = 10, .checkpoint_interval_seconds = 90, .data_stall_seconds = 0.5});
  EXPECT_DOUBLE_EQ(stalls.step_seconds, 2.5 * 100 / 90);
}

// The same run played out: work in intervals, failures drawn, lost work and restarts paid.
TEST(EffectiveTime, ARunThatIsPlayedTakesAsLong) {
  const double interval = 600, stall = 20, restart = 120, mean = 3600;
  const int gpus = 100;
  std::mt19937_64 random(11);
  std::exponential_distribution<double> next_failure(1 / mean);
  double wall = 0;
  const int intervals = 200'000;
  for (int i = 0; i < intervals; ++i) {
    double needed = interval + stall;
    while (true) {
      const double failure = next_failure(random);
      if (failure >= needed) break;
      wall += failure;
      needed = restart + interval + stall;  // a failure while restarting starts over as well
    }
    wall += needed;
  }
  const double played = wall / (intervals * interval);
  const EffectiveTime priced = PriceEffectiveTime(1, gpus,
                                                  {.checkpoint_stall_seconds = stall,
                                                   .checkpoint_interval_seconds = interval,
                                                   .failures_per_gpu_hour = 3600 / mean / gpus,
                                                   .restart_seconds = restart});
  EXPECT_NEAR(priced.step_seconds, played, 0.01 * played);
  EXPECT_NEAR(priced.mean_seconds_between_failures, mean, 1e-6);
}

TEST(EffectiveTime, TheChosenIntervalIsTheBest) {
  Reliability r{.checkpoint_stall_seconds = 30, .failures_per_gpu_hour = 1e-4, .restart_seconds = 300};
  const EffectiveTime chosen = PriceEffectiveTime(5, 1024, r);
  // Young: sqrt(2 C M) with M = 1 / (1024e-4 / h).
  const double young = std::sqrt(2 * 30 * 3600 / 0.1024);
  EXPECT_NEAR(chosen.checkpoint_interval_seconds, young, 0.05 * young);
  for (const double factor : {0.3, 0.7, 1.4, 3.0}) {
    r.checkpoint_interval_seconds = factor * chosen.checkpoint_interval_seconds;
    EXPECT_GT(PriceEffectiveTime(5, 1024, r).step_seconds, chosen.step_seconds) << factor;
  }
}

TEST(EffectiveTime, MoreTroubleIsNeverFaster) {
  double before = 0;
  for (const double rate : {0.0, 1e-6, 1e-4, 1e-2, 1.0, 1e6}) {
    const EffectiveTime t = PriceEffectiveTime(
        1, 16384, {.checkpoint_stall_seconds = 5, .failures_per_gpu_hour = rate, .restart_seconds = 60});
    EXPECT_GE(t.step_seconds, before) << rate;
    EXPECT_GE(t.share_of_time, 0);
    EXPECT_LE(t.share_of_time, 1);
    before = t.step_seconds;
  }
  EXPECT_TRUE(std::isinf(before));
  const EffectiveTime odd = PriceEffectiveTime(std::nan(""), -5, {.failures_per_gpu_hour = -1});
  EXPECT_EQ(odd.step_seconds, 0);
}

}  // namespace
}  // namespace trainctl::simulate
