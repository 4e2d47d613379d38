#include "report/draw_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_split.h"
#include "tests/unit/simulate/pass_times.h"

namespace trainctl::report {
namespace {

using schedule::Expanded;
using schedule::PipelineKind;
using schedule::PipelineShape;
using simulate::StageCosts;

using ::testing::HasSubstr;
using ::testing::Not;

std::string Draw(PipelineKind kind, const PipelineShape& shape, const DrawOrderOptions& options = {},
                 const StageCosts& costs = {1, 1, 1}) {
  const schedule::Step step = Expanded(kind, shape);
  return DrawOrder(step, simulate::Times(step, {.stages = {costs}}).played, options);
}

TEST(DrawOrder, DrawsRanksAgainstTime) {
  EXPECT_EQ(Draw(PipelineKind::k1F1B, {2, 3, 1}),
            "rank 0 |F0 F1 .  .  B0--- F2 B1--- .  B2---\n"
            "rank 1 |.  F0 B0--- F1 B1--- F2 B2--- .  .\n"
            "F forward, B backward, I input backward, W weight backward, . idle\n");
  EXPECT_EQ(Draw(PipelineKind::kZbv, {1, 2, 2}),
            "rank 0 |F0 f0 i0 w0 F1 I0 W0 f1 i1 I1 w1 W1\nF forward, B backward, I input backward, W weight "
            "backward, . idle; lowercase: every second round of stages\n");
}

TEST(DrawOrder, ALongPictureIsClippedToItsWidth) {
  for (int width : {-5, 0, 1, 9, 40, 41, 42, 120}) {
    for (bool color : {false, true}) {
      const std::string text = Draw(PipelineKind::kDualPipe, {12, 1000, 1}, {.width = width, .color = color});
      for (absl::string_view line : absl::StrSplit(text, '\n')) {
        if (line.substr(0, 4) != "rank") continue;
        EXPECT_EQ(line.back(), '>');
        // Escape sequences take no room.
        size_t columns = 0;
        bool escape = false;
        for (char c : line) {
          escape = escape || c == '\x1b';
          columns += escape ? 0 : 1;
          if (c == 'm') escape = false;
        }
        EXPECT_LE(columns, static_cast<size_t>(std::max(width, 10)));
      }
    }
  }
}

TEST(DrawOrder, ColourReplacesLetters) {
  const std::string text = Draw(PipelineKind::kZbH1, {2, 2, 1}, {.color = true});
  EXPECT_THAT(text, HasSubstr("\x1b[30;44m 0 \x1b[0m"));
  EXPECT_THAT(text, Not(HasSubstr("F0")));
}

TEST(DrawOrder, ACellMayBeGiven) {
  EXPECT_THAT(Draw(PipelineKind::kGPipe, {1, 2, 1}, {.cell_s = 2}, {4, 2, 2}),
              HasSubstr("rank 0 |F0--- F1--- B0--- B1---\n"));
}

TEST(DrawOrder, NothingToDrawGivesTheLegend) {
  const std::string legend = "F forward, B backward, I input backward, W weight backward, . idle\n";
  EXPECT_EQ(Draw(PipelineKind::k1F1B, {2, 3, 1}, {}, {0, 0, 0}), legend);
  EXPECT_EQ(DrawOrder({}, {}, {}), legend);
}

}  // namespace
}  // namespace trainctl::report
