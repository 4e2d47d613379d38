#include "base/counter_rng.h"

#include <gtest/gtest.h>

#include <set>

namespace trainctl {
namespace {

// Known answers published with the Random123 library (kat_vectors, philox4x32 10 rounds).
TEST(CounterRng, PhiloxMatchesThePublishedVectors) {
  EXPECT_EQ(Philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(CounterRng, PermutedIndexIsABijection) {
  for (uint64_t count : {1, 2, 3, 7, 64, 1000, 4097}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < count; ++i) seen.insert(PermutedIndex(5, 9, i, count));
    EXPECT_EQ(seen.size(), count);
    EXPECT_LT(*seen.rbegin(), count);
  }
}

TEST(CounterRng, NormalsHaveMeanZeroAndVarianceOne) {
  double sum = 0, squares = 0;
  const int count = 200000;
  for (int i = 0; i < count; ++i) {
    const double x = RandomNormal(1, 2, i);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.02);
}

}  // namespace
}  // namespace trainctl
