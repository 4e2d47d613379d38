#include "tokenizer/pattern.h"

#include <gmock/gmock.h>

#include "base/status.h"

namespace trainctl::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> PiecesOf(const Pattern& pattern, absl::string_view text) {
  MatchScratch scratch;
  std::vector<Match> matches;
  EXPECT_TRUE(pattern.FindAll(text, scratch, &matches).ok());
  std::vector<std::string> pieces;
  for (const Match& m : matches) {
    pieces.push_back(
        absl::StrCat(m.is_match ? "+" : "-", text.substr(m.span.begin, m.span.end - m.span.begin)));
  }
  return pieces;
}

TEST(Pattern, MatchesAndWhatLiesBetweenAreTheWholeText) {
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"(\d+)", "p"), "a12b3"), ElementsAre("-a", "+12", "-b", "+3"));
  EXPECT_THAT(PiecesOf(*Pattern::Literal("ab", "p"), "xababy"), ElementsAre("-x", "+ab", "+ab", "-y"));
  // An empty match cuts, but not right behind another match.
  EXPECT_THAT(PiecesOf(*Pattern::Compile("(?=b)", "p"), "abcb"), ElementsAre("-a", "+", "-bc", "+", "-b"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile("a*", "p"), "aab"), ElementsAre("+aa", "-b", "+"));
}

// What the two libraries read differently: U+180E is white space for PCRE2 alone, scripts are script
// extensions there.
TEST(Pattern, ClassesAreThoseOfOniguruma) {
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"(\s)", "p"), "\u180E\u0085\u2028x"),
              ElementsAre("-\u180E", "+\u0085", "+\u2028", "-x"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"([^\S\n])", "p"), "\n\u180E\u3000"),
              ElementsAre("-\n\u180E", "+\u3000"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"(\p{Han})", "p"), "\u3001\u4E00"),
              ElementsAre("-\u3001", "+\u4E00"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"(\w+)", "p"), "a\u0301\u203F\u00B2"),
              ElementsAre("+a\u0301\u203F", "-\u00B2"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"([\u4e00-\x{9fa5}\v]+)", "p"), "\x0B\u4E00\n"),
              ElementsAre("+\x0B\u4E00", "-\n"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile("^b$", "p"), "a\nb\nc"), ElementsAre("-a\n", "+b", "-\nc"));
}

TEST(Pattern, WhatIsReadDifferentlyIsRefusedWithItsPlace) {
  for (const char* pattern :
       {R"(\h)", R"(\b)", R"(\K)", "(a)", "(?m:a)", "(?<n>a)", "[a[b]]", "[a&&b]", "a{2}+", "a{,2}", "a{",
        "[", R"(\)", "(", R"(\p{No_Such})", R"(\x{110000})", "", R"(\pL)", "[]a]"}) {
    const auto compiled = Pattern::Compile(pattern, "t.json: pre_tokenizer.pattern.Regex");
    ASSERT_FALSE(compiled.ok()) << pattern;
    EXPECT_EQ(ExitCodeFor(compiled.status()), ExitCode::kBadData);
    EXPECT_THAT(compiled.status().message(), HasSubstr("t.json: pre_tokenizer.pattern.Regex")) << pattern;
  }
}

TEST(Pattern, OneThatBacktracksWithoutEndIsAnErrorAndLongRunsAreNot) {
  MatchScratch scratch;
  std::vector<Match> matches;
  const auto evil = Pattern::Compile("(?:a+)+[bc]", "evil");
  const absl::Status status = evil->FindAll(std::string(64, 'a'), scratch, &matches);
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_THAT(status.message(), HasSubstr("evil: the pattern gives up on a text of 64 bytes"));
  matches.clear();
  const auto run = Pattern::Compile(R"(\s+(?!\S)|\s+|[xy]+)", "run");
  EXPECT_TRUE(
      run->FindAll(std::string(3000000, ' ') + "." + std::string(3000000, 'x'), scratch, &matches).ok());
  EXPECT_EQ(matches.size(), 4U);
}

}  // namespace
}  // namespace trainctl::tokenizer
