#include "report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "report/page_assets.h"
#include "tests/unit/report/page_reading.h"

namespace trainctl::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two micro-batches on one rank.
PageInput SmallPage(const std::string& title) {
  PageInput input;
  input.title = title;
  input.step.num_stages = 1;
  input.step.num_micro_batches = 2;
  input.step.stages = {{.forward_s = 1, .backward_s = 2}};
  input.step.end_s = input.step.step_s = 6;
  input.step.ranks = {{.streams = {{StreamKind::kCompute,
                                    "compute",
                                    {{0, 1, SpanKind::kForward, 0, 0},
                                     {1, 3, SpanKind::kBackward, 0, 0},
                                     {3, 4, SpanKind::kForward, 0, 1},
                                     {4, 6, SpanKind::kBackward, 0, 1}}}},
                       .samples = {{.time_s = 0, .activation_bytes = 1e9}},
                       .state_bytes = 2e9,
                       .peak = {.device_bytes = 3e9, .upper_bytes = 3e9}}};
  return input;
}

TEST(PlanPage, CarriesItsAssetsAsTheyAre) {
  for (const auto& [name, text] :
       {std::pair("html", kPageHtml), std::pair("css", kPageCss), std::pair("js", kPageJs)}) {
    const auto file = ReadFile(absl::StrCat(TRAINCTL_SOURCE_DIR, "/lib/report/page.", name));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(*file, text) << name;
  }
}

TEST(PlanPage, NothingThatItIsGivenCanBreakOutOfItsPlace) {
  const std::string evil(kEvilText);
  PageInput input = SmallPage(evil);
  input.facts.push_back({evil, evil});
  input.what_if.push_back({evil, true, 1e9, 1, evil});
  input.pareto = {evil, evil, {{evil, 1, 2, true, true}}};
  input.constants.push_back({evil, evil, evil, evil});
  input.notes.push_back(evil);
  const std::string page = PlanPage(input);
  EXPECT_EQ(CountOf("<script", page), 2);
  EXPECT_EQ(CountOf("</script", page), 2);
  EXPECT_THAT(page, Not(HasSubstr("<!-- ")));
  // What stands in a text stays what it was.
  const Json data = DataOf(page);
  EXPECT_EQ(data["title"], kEvilTextShown);
  EXPECT_EQ(data["what_if"].back()["reason"], kEvilTextShown);
  EXPECT_EQ(data["notes"].back(), kEvilTextShown);
}

TEST(PlanPage, AsksNobodyForAnything) {
  const std::string page = PlanPage(SmallPage("GPT-3"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* const asset : {kPageHtml, kPageCss, kPageJs}) {
    for (const char* const word :
         {"src=", "@import", "url(", "<link", "fetch(", "XMLHttpRequest", "innerHTML"}) {
      EXPECT_THAT(asset, Not(HasSubstr(word)));
    }
  }
}

TEST(PlanPage, NumbersThatAreNoneDoNotBreakIt) {
  PageInput input = SmallPage("GPT-3");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  input.memory_limit_bytes = nan;
  input.what_if = {{"a", false, inf, nan, ""}};
  input.pareto = {"x", "y", {{"a", nan, 1, true, false}, {"b", 1, inf, true, false}}};
  input.step.step_s = nan;
  const Json data = DataOf(PlanPage(input));
  EXPECT_EQ(data["limit"], 0.0);
  EXPECT_EQ(data["what_if"][0]["bytes"], 0.0);
  EXPECT_TRUE(data["pareto"]["points"].empty());
}

TEST(PlanPage, AnEmptyInputIsAPageToo) { EXPECT_THAT(PlanPage(PageInput()), HasSubstr("</html>")); }

}  // namespace
}  // namespace trainctl::report
