#include "planner/draw_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "plan_picture_util.h"

namespace trainctl::planner {
namespace {

using schedule::PipelineKind;

TEST(DrawStep, DrawsOneLinePerRankWithinTheWidth) {
  for (const int width : {40, 80, 200}) {
    const std::string text = DrawStep(GptToDraw(PipelineKind::k1F1B, 1, 8, 16), {.width = width});
    int ranks = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (!absl::StartsWith(line, "rank ")) continue;
      ++ranks;
      EXPECT_LE(static_cast<int>(line.size()), width) << line;
    }
    EXPECT_EQ(ranks, 8);
    EXPECT_FALSE(absl::StrContains(text, "\x1b"));
  }
}

// 1F1B's warm-up: the rank before the last begins two forwards, the last one goes back at once.
TEST(DrawStep, TheLastRankGoesBackAtOnce) {
  const std::string text = DrawStep(GptToDraw(PipelineKind::k1F1B, 1, 4, 8), {.width = 200});
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
}  // namespace trainctl::planner
