#include "report/run_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "report/page_assets.h"
#include "tests/unit/report/page_reading.h"

namespace trainctl::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

LoggedRun SmallRun(const std::string& name, int64_t steps) {
  LoggedRun run;
  run.name = name;
  run.path = "/runs/" + name;
  run.status = "finished";
  run.total_steps = steps;
  for (int64_t step = 1; step <= steps; ++step) {
    const auto x = static_cast<double>(step);
    run.loss.push_back({step, 5 / x});
    run.grad_norm.push_back({step, 1 / x});
    run.lr.push_back({step, 1e-3});
    run.tokens_per_second.push_back({step, 1'000});
    run.step_seconds.push_back({step, 0.5});
    run.places.push_back({step, 500 * x, 0.5 * x});
  }
  run.recipe = {{"optimizer.lr", "0.001"}, {"train.steps", absl::StrCat(steps)}};
  return run;
}

Json DataOfRuns(const std::vector<LoggedRun>& runs) { return DataOf(RunPage({runs})); }

TEST(RunPage, CarriesItsAssetsAsTheyAre) {
  for (const auto& [name, text] :
       {std::pair("page_parts.js", kPagePartsJs), std::pair("run_page.html", kRunPageHtml),
        std::pair("run_page.css", kRunPageCss), std::pair("run_page.js", kRunPageJs)}) {
    const auto file = ReadFile(absl::StrCat(TRAINCTL_SOURCE_DIR, "/lib/report/", name));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(*file, text) << name;
  }
}

TEST(RunPage, NoTextOfARunBecomesMarkup) {
  LoggedRun run = SmallRun(kEvilText, 3);
  run.path = run.status = run.problem = run.started = kEvilText;
  run.evaluation = {{kEvilText, {{3, 2.5}}}};
  run.events = {{RunEventKind::kFailure, kEvilText, 2, kEvilText}};
  run.memory.parts = {{kEvilText, 1.0, 2.0}};
  run.recipe = {{kEvilText, kEvilText}};
  const std::string page = RunPage({{run, SmallRun("other", 2)}});
  EXPECT_EQ(CountOf("<script", page), 2);
  EXPECT_EQ(CountOf("</script", page), 2);
  EXPECT_THAT(page, Not(HasSubstr("<!-- ")));
  const Json data = DataOf(page);
  EXPECT_EQ(data["runs"][0]["name"], kEvilTextShown);
  EXPECT_EQ(data["runs"][0]["events"][0]["text"], kEvilTextShown);
  EXPECT_EQ(data["runs"][0]["evaluation"][0]["name"], kEvilTextShown);
  EXPECT_EQ(data["differences"][0]["key"], kEvilTextShown);
  // The title of a page with one run is the run's name.
  EXPECT_EQ(CountOf("<script", RunPage({{run}})), 2);
}

TEST(RunPage, LoadsNothing) {
  EXPECT_THAT(kRunPageHtml, HasSubstr("default-src 'none'"));
  for (const char* const asset : {kPagePartsJs, kRunPageHtml, kRunPageCss, kRunPageJs}) {
    for (const char* const word :
         {"src=", "@import", "url(h", "<link", "fetch(", "XMLHttpRequest", "innerHTML"}) {
      EXPECT_THAT(asset, Not(HasSubstr(word)));
    }
  }
}

TEST(RunPage, ALossThatIsNotFiniteIsAGap) {
  LoggedRun run = SmallRun("a", 4);
  run.loss[1].value = kNan;
  run.loss[3].value = std::numeric_limits<double>::infinity();
  run.skipped_steps = {2, 4};
  const Json one = DataOfRuns({run})["runs"][0];
  EXPECT_EQ(one["loss"]["values"], Json::parse("[5.0, null, 1.66667, null]"));
  EXPECT_EQ(one["smooth"]["values"][1], nullptr);
  EXPECT_EQ(one["last_loss"], 1.66667);
  EXPECT_EQ(one["skipped"], Json::parse("[2, 4]"));
}

TEST(RunPage, StepsAreDifferences) {
  LoggedRun run = SmallRun("a", 0);
  run.loss = {{10, 3.0}, {20, 2.0}, {25, 1.0}};
  EXPECT_EQ(DataOfRuns({run})["runs"][0]["loss"]["steps"], Json::parse("[10, 10, 5]"));
}

TEST(RunPage, ManyLongRunsStaySmall) {
  std::vector<LoggedRun> runs;
  for (int r = 0; r < 12; ++r) {
    runs.push_back(SmallRun(absl::StrCat("run-", r), 30'000));
    for (int64_t step = 1; step <= 20'000; ++step) {
      runs.back().events.push_back({RunEventKind::kCheckpoint, "2026-11-28 22:17:08", step, "checkpoint"});
      runs.back().skipped_steps.push_back(step);
    }
    runs.back().events.push_back({RunEventKind::kOther, "2026-11-28 22:17:09", -1, "finished"});
  }
  const std::string page = RunPage({runs});
  EXPECT_LT(page.size(), size_t{4} << 20);
  const Json one = DataOf(page)["runs"][0];
  EXPECT_LE(one["loss"]["steps"].size(), 667U);
  EXPECT_EQ(one["events"].back()["text"], "finished");
  EXPECT_EQ(one["num_skipped"], 20'000);
  EXPECT_LE(one["skipped"].size(), 1'000U);
}

TEST(RunPage, RecipesDifferInWhatTheyDoNotShare) {
  LoggedRun a = SmallRun("a", 3), b = SmallRun("b", 5);
  b.recipe.emplace_back("parallel.pp", "2");
  const Json rows = DataOfRuns({a, b})["differences"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["key"], "train.steps");
  EXPECT_EQ(rows[0]["values"], Json::parse(R"(["3", "5"])"));
  EXPECT_EQ(rows[1]["values"], Json::parse(R"(["", "2"])"));
  EXPECT_TRUE(DataOfRuns({a})["differences"].empty());
}

TEST(RunPage, ARunWithoutStepsIsAPageToo) {
  LoggedRun run;
  run.name = "empty";
  const Json one = DataOfRuns({run})["runs"][0];
  EXPECT_EQ(one["step"], -1);
  EXPECT_EQ(one["last_loss"], nullptr);
  EXPECT_THAT(RunPage({}), HasSubstr("</html>"));
}

TEST(FiguresOf, TheBestEvaluationIsTheLowestLossOfAnySet) {
  LoggedRun run = SmallRun("a", 3);
  run.evaluation = {{"x", {{1, 3.0}, {2, kNan}, {3, 2.5}}}, {"y", {{1, 4.0}, {2, 2.25}, {3, 2.5}}}};
  const RunFigures figures = FiguresOf(run);
  EXPECT_EQ(figures.best_evaluation, 2.25);
  EXPECT_EQ(figures.best_evaluation_step, 2);
  EXPECT_EQ(figures.best_evaluation_set, "y");
  EXPECT_EQ(figures.step, 3);
  EXPECT_EQ(figures.tokens, 1'500);
  EXPECT_EQ(figures.tokens_per_second, 1'000);
}

}  // namespace
}  // namespace trainctl::report
