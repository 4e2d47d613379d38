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
  // Superscripts and fractions of Latin-1 are word characters outside of a class alone.
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"(\w+)", "p"), "a\u0301\u203F\u00B2\u00BE\u2074"),
              ElementsAre("+a\u0301\u203F\u00B2\u00BE", "-\u2074"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"(\W+)", "p"), "\u00BE\u00B4\u2074"),
              ElementsAre("-\u00BE", "+\u00B4\u2074"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"([\w]+)", "p"), "a\u00B2"), ElementsAre("+a", "-\u00B2"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"([\u4e00-\x{9fa5}\v]+)", "p"), "\x0B\u4E00\n"),
              ElementsAre("+\x0B\u4E00", "-\n"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile("^b$", "p"), "a\nb\nc"), ElementsAre("-a\n", "+b", "-\nc"));
}

// Whatever PCRE2's version knows; Debian's has Unicode 14.0.
TEST(Pattern, PropertiesAreThoseOfUnicode16) {
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"(\p{L}+)", "p"), "a\u1C89\uA7CB\U00031350b\U0001FAE8"),
              ElementsAre("+a\u1C89\uA7CB\U00031350b", "-\U0001FAE8"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"(\p{N})", "p"), "\U00011F50\U00011DE0"),
              ElementsAre("+\U00011F50", "-\U00011DE0"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"(\P{S}+)", "p"), "\u2FFC\u2FFBx"),
              ElementsAre("-\u2FFC\u2FFB", "+x"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"(\p{^P}+)", "p"), "\U0001E5FFx"),
              ElementsAre("-\U0001E5FF", "+x"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"([^\P{M}\x{301}]+)", "p"), "a\u0301\u0897"),
              ElementsAre("-a\u0301", "+\u0897"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"((?<=\p{Lu})\w\d)", "p"), "\u1C89\U00016D60\U00011F52"),
              ElementsAre("-\u1C89", "+\U00016D60\U00011F52"));
}

TEST(Pattern, ClassesAreReadAsOnigurumaReadsThem) {
  EXPECT_THAT(PiecesOf(*Pattern::Compile("[a-c-e]+", "p"), "abd-e"), ElementsAre("+ab", "-d", "+-e"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile("[--0]+", "p"), "./1"), ElementsAre("+./", "-1"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"([\]\\\-z^-]+)", "p"), R"(a]\-z^)"),
              ElementsAre("-a", R"(+]\-z^)"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile("[\u4E00-\u9FA5]+|\u3042", "p"), "\u4E00\u9FA5\u3042\u3044"),
              ElementsAre("+\u4E00\u9FA5", "+\u3042", "-\u3044"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile("[^a]", "p"), "a\u00E9\n"), ElementsAre("-a", "+\u00E9", "+\n"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"([^\s\S])", "p"), "a\u00E9"), ElementsAre("-a\u00E9"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"([\s\S]+)", "p"), "a\u00E9"), ElementsAre("+a\u00E9"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile("(?i:[^k-m]+)", "p"), "jK\u212An\u00E9"),
              ElementsAre("+j", "-K\u212A", "+n\u00E9"));
}

// Oniguruma takes "ss" for U+00DF where case does not matter, and more of the kind.
TEST(Pattern, WithoutCaseOnlyWhatBothReadAlikeIsTaken) {
  EXPECT_THAT(PiecesOf(*Pattern::Compile("(?i:'ll|[st]+)st", "p"), "'LLst \u017FSTst"),
              ElementsAre("+'LLst", "- ", "+\u017FSTst"));
  EXPECT_THAT(PiecesOf(*Pattern::Compile(R"((?:(?i:[\s\d]a)st\p{L})+[\p{L}])", "p"), " Asta"),
              ElementsAre("- Asta"));
  for (const char* pattern :
       {"(?i:ss)", "(?i:xSt)", "(?i:a(?:ff))", "(?i:fi|a)", "(?i:fL)", R"((?i:[\p{L}]))", R"((?i:[^\p{L}a]))",
        R"((?i:\p{Lu}))", R"((?i:[\w]))", R"((?i:[\S]))", R"((?i:[^\D]))", "(?i:\u00E9)", R"((?i:\u00e9))",
        R"((?i:[a\x{17f}]))"}) {
    const auto compiled = Pattern::Compile(pattern, "p");
    ASSERT_FALSE(compiled.ok()) << pattern;
    EXPECT_THAT(compiled.status().message(), HasSubstr("within (?i:...)")) << pattern;
  }
}

TEST(Pattern, CapturingGroupsAreGroups) {
  EXPECT_THAT(PiecesOf(*Pattern::Compile("((a)|b)+c", "p"), "xabac"), ElementsAre("-x", "+abac"));
}

TEST(Pattern, NothingMatchesInAnEmptyText) {
  EXPECT_TRUE(PiecesOf(*Pattern::Compile("a*|$", "p"), "").empty());
}

TEST(Pattern, WhatIsReadDifferentlyIsRefusedWithItsPlace) {
  for (const char* pattern : {R"(\h)",
                              R"(\b)",
                              R"(\K)",
                              "(?m:a)",
                              "(?<n>a)",
                              "[a[b]]",
                              "[a&&b]",
                              "a{2}+",
                              "a{,2}",
                              "a{",
                              "[",
                              R"(\)",
                              "(",
                              "a)",
                              "a{2}?",
                              R"(\x80)",
                              R"(\xff)",
                              R"(\p{No_Such})",
                              R"(\x{110000})",
                              R"(\ud800)",
                              R"(\p{})",
                              R"([\s-x])",
                              R"([a-\d])",
                              "[z-a]",
                              "",
                              R"(\pL)",
                              "[]a]"}) {
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
  EXPECT_THAT(status.message(), HasSubstr("evil: matching the pattern failed on a text of 64 bytes"));
  matches.clear();
  const auto run = Pattern::Compile(R"(\s+(?!\S)|\s+|[xy]+)", "run");
  EXPECT_TRUE(
      run->FindAll(std::string(3000000, ' ') + "." + std::string(3000000, 'x'), scratch, &matches).ok());
  EXPECT_EQ(matches.size(), 4U);
}

}  // namespace
}  // namespace trainctl::tokenizer
