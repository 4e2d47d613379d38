#include "data/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/counter_rng.h"

namespace trainctl::data {
namespace {

// Deals `count` sequences one after the other; checks that each source's sequences are numbered in order, and
// returns the largest distance of any source from its share at any time.
double LargestDeviation(const std::vector<int64_t>& weights, int64_t count) {
  double sum = 0;
  for (const int64_t weight : weights) sum += static_cast<double>(weight);
  const Mixture mixture(weights);
  std::vector<int64_t> drawn(weights.size(), 0);
  double largest = 0;
  for (int64_t n = 0; n < count; ++n) {
    const Mixture::Draw draw = mixture.At(n);
    EXPECT_EQ(draw.index, drawn[static_cast<size_t>(draw.source)]++);
    for (size_t s = 0; s < weights.size(); ++s) {
      const double share = static_cast<double>(weights[s]) / sum * static_cast<double>(n + 1);
      largest = std::max(largest, std::abs(static_cast<double>(drawn[s]) - share));
    }
  }
  return largest;
}

TEST(Mixture, SharesHoldWithinOneSequenceAtAnyTime) {
  EXPECT_LE(LargestDeviation({1}, 100), 1e-9);
  EXPECT_LE(LargestDeviation({1, 1}, 1000), 0.5 + 1e-9);
  EXPECT_LE(LargestDeviation({8, 2}, 5000), 0.5 + 1e-9);
  EXPECT_LT(LargestDeviation({5, 3, 2}, 5000), 1);
  EXPECT_LT(LargestDeviation({1, 1, 1}, 5000), 1);
  EXPECT_LT(LargestDeviation({700, 150, 100, 50}, 5000), 1);
  EXPECT_LT(LargestDeviation({900, 20, 20, 20, 20, 20}, 5000), 1);
  EXPECT_LT(LargestDeviation({1, 1, 1, 1, 1, 1, 1, 1}, 5000), 1);
}

TEST(Mixture, RandomWeightsStayWithinTheirBound) {
  for (uint64_t trial = 0; trial < 100; ++trial) {
    const size_t num_sources = 2 + RandomBelow(3, 1, trial, 11);
    std::vector<int64_t> weights;
    for (size_t s = 0; s < num_sources; ++s) {
      weights.push_back(1 + static_cast<int64_t>(RandomBelow(3, 100 + trial, s, 1000000)));
    }
    EXPECT_LT(LargestDeviation(weights, 2000), num_sources <= 3 ? 1 : 2) << "trial " << trial;
  }
}

TEST(Mixture, FarAwayStepsAreAnsweredAtOnce) {
  const Mixture mixture({3, 1});
  const int64_t far = int64_t{1} << 60;
  // Any four consecutive sequences hold three of one and one of the other.
  int64_t first = 0;
  for (int64_t n = far; n < far + 4; ++n) first += mixture.At(n).source == 0 ? 1 : 0;
  EXPECT_EQ(first, 3);
  for (int64_t n = far; n < far + 4; ++n) {
    const Mixture::Draw draw = mixture.At(n);
    EXPECT_NEAR(static_cast<double>(draw.index), static_cast<double>(far) * (draw.source == 0 ? 0.75 : 0.25),
                1024);
  }
}

TEST(Mixture, ASourceOfWeightZeroIsNeverDrawn) {
  const Mixture mixture({0, 2, 0, 1});
  for (int64_t n = 0; n < 300; ++n) EXPECT_EQ(mixture.At(n).source % 2, 1);
}

TEST(Mixture, SharesAsFractionsBecomeIntegersWithoutBias) {
  const std::vector<int64_t> weights = IntegerWeights({0.5, 0.25, 0.25, 0.0});
  EXPECT_EQ(weights, (std::vector<int64_t>{int64_t{1} << 51, int64_t{1} << 50, int64_t{1} << 50, 0}));
  EXPECT_EQ(IntegerWeights({1e-300, 1.0}).front(), 1);
}

}  // namespace
}  // namespace trainctl::data
