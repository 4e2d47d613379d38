#include "frameworks/draw_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "plan_picture_util.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

std::vector<std::string> RankLines(const std::string& text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "rank ")) lines.emplace_back(line);
  }
  return lines;
}

TEST(DrawStep, DrawsOneLinePerRankWithinTheWidth) {
  const Workload w = GptToDraw(PipelineKind::k1F1B, 1, 8, 16);
  for (const int width : {1, 40, 80, 200, 2000}) {
    const std::string text = DrawStep(w, {.width = width});
    const std::vector<std::string> lines = RankLines(text);
    // All of it in one, or an overview and the beginning.
    EXPECT_EQ(lines.size(), width == 2000 ? 8U : 16U) << text;
    for (const std::string& line : lines) {
      if (width >= 40) {
        EXPECT_LE(static_cast<int>(line.size()), width) << line;
      }
    }
    EXPECT_FALSE(absl::StrContains(text, "\x1b"));
  }
}

// The first rank begins with forwards, idles through the warm-up of the others and ends with backwards; the
// last one waits first.
TEST(DrawStep, TheOverviewShowsTheWholeStep) {
  const std::vector<std::string> lines =
      RankLines(DrawStep(GptToDraw(PipelineKind::k1F1B, 1, 8, 16), {.width = 200}));
  ASSERT_EQ(lines.size(), 16U);
  EXPECT_THAT(lines[0], ::testing::MatchesRegex("rank 0 [|]F+[.]+B+F.*B[.]?"));
  EXPECT_THAT(lines[7], ::testing::MatchesRegex("rank 7 [|][.]+F+B+.*B[.]+"));
  EXPECT_EQ(lines[0].size(), lines[7].size());
}

// 1F1B's warm-up: the rank before the last begins two forwards, the last one goes back at once.
TEST(DrawStep, TheLastRankGoesBackAtOnce) {
  const std::string text = DrawStep(GptToDraw(PipelineKind::k1F1B, 1, 4, 8), {.width = 400});
  EXPECT_THAT(text, ::testing::HasSubstr("rank 3 |.  .  .  F0 B0"));
  EXPECT_THAT(text, ::testing::HasSubstr("rank 0 |F0 F1 F2 F3 "));
}

TEST(DrawStep, ColorsAreAnsi) {
  EXPECT_THAT(DrawStep(GptToDraw(PipelineKind::k1F1B, 1, 2, 4), {.width = 80, .color = true}),
              ::testing::HasSubstr("\x1b[30;44m"));
}

TEST(DrawStep, AJobWithoutAPipelineIsDrawnToo) {
  const std::string text = DrawStep(GptToDraw(PipelineKind::k1F1B, 1, 1, 3), {.width = 120});
  EXPECT_THAT(text, ::testing::HasSubstr("no pipeline: 1 rank, 3 micro-batches"));
  EXPECT_THAT(text, ::testing::HasSubstr("rank 0 |F0 B0"));
}

}  // namespace
}  // namespace trainctl::frameworks
