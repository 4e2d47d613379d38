#include "base/wildcard.h"

#include <gtest/gtest.h>

#include <string>

namespace trainctl {
namespace {

TEST(Wildcard, StarAndQuestionMark) {
  EXPECT_TRUE(MatchesWildcard("*norm.weight", "model.norm.weight"));
  EXPECT_TRUE(MatchesWildcard("*.bias", "model.layers.0.self_attn.q_proj.bias"));
  EXPECT_FALSE(MatchesWildcard("*.bias", "model.bias.weight"));
  EXPECT_TRUE(MatchesWildcard("a?c*", "abc"));
  EXPECT_FALSE(MatchesWildcard("a?c", "ac"));
  EXPECT_TRUE(MatchesWildcard("*ab*ab", "xababab"));
  EXPECT_FALSE(MatchesWildcard("", "a"));
  EXPECT_TRUE(MatchesWildcard("", ""));
  EXPECT_TRUE(MatchesWildcard("***", ""));
  EXPECT_FALSE(MatchesWildcard("a", ""));
}

// Brackets are ordinary characters: a pattern means the same wherever it is read.
TEST(Wildcard, NothingElseIsSpecial) {
  EXPECT_FALSE(MatchesWildcard("[ab]", "a"));
  EXPECT_TRUE(MatchesWildcard("[ab]", "[ab]"));
  EXPECT_FALSE(MatchesWildcard("\\*", "*"));
}

TEST(Wildcard, ManyStarsDoNotTakeForEver) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(MatchesWildcard(pattern + "b", std::string(5000, 'a')));
}

}  // namespace
}  // namespace trainctl
