// Plans as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "optim/optimizer.h"
#include "plan/plan.h"
#include "tests/unit/planner/make_plan_fixture.h"

namespace trainctl::planner {
namespace {

using plan::PlanFromJson;
using plan::PlanToJson;
using ::testing::HasSubstr;

TEST(PlanJson, SurvivesTheRoundTrip) {
  for (int64_t workers : {1, 2, 6}) {
    recipe::Recipe recipe = SmallRecipe(workers);
    recipe.train.precision = workers == 2 ? "bf16" : "fp32";
    recipe.parallel.prefetch = workers != 2;
    recipe.checkpoint.async = workers == 2;
    recipe.parallel.recompute = workers == 6 ? "full" : "none";
    const Plan plan = MustPlan(recipe);
    const absl::StatusOr<Plan> back = PlanFromJson(PlanToJson(plan), "plan.json");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, plan);
  }
}

TEST(PlanJson, TheOptimizerIsAdamWWhereAnOlderPlanNamesNone) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.optimizer.name = "lion";
  const std::string text = PlanToJson(MustPlan(recipe));
  const auto read = [&](const std::string& to) {
    return PlanFromJson(absl::StrReplaceAll(text, {{"\"optimizer\": \"lion\",", to}}), "plan.json");
  };
  EXPECT_EQ(read("\"optimizer\": \"lion\",")->setting.optimizer, optim::Find("lion"));
  EXPECT_EQ(read("")->setting.optimizer, &optim::kAdamW);
  EXPECT_EQ(MessageOf(read("\"optimizer\": \"adam\",")),
            "plan.json: field 'optimizer' is \"adam\", not adamw, lion, sgd");
}

TEST(PlanJson, ANewerVersionIsRefusedWithAClearWord) {
  const std::string text =
      absl::StrReplaceAll(PlanToJson(MustPlan(SmallRecipe(2))), {{"plan.v1", "plan.v2"}});
  const absl::Status status = PlanFromJson(text, "run/plan.json").status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_THAT(std::string(status.message()), HasSubstr("newer trainctl"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("run/plan.json"));
}

TEST(PlanJson, DamageIsAnErrorThatNamesTheFieldAndNothingWorse) {
  const std::string text = PlanToJson(MustPlan(SmallRecipe(2)));
  const std::pair<std::pair<const char*, const char*>, const char*> damages[] = {
      {{"\"zero_stage\": 0", "\"zero_stage\": 7"}, "zero_stage"},
      {{"\"dp_replicate\": 2", "\"dp_replicate\": 2000000000"}, "mesh"},
      {{"\"accumulation\"", "\"accumulations\""}, "accumulation"},
      {{"\"micro_batch\": ", "\"micro_batch\": -"}, "micro_batch"},
      {{"\"recompute\": \"none\"", "\"recompute\": \"some\""}, "recompute"},
      {{"\"compute_dtype\": \"F32\"", "\"compute_dtype\": \"I32\""}, "compute_dtype"},
      {{"\"master_dtype\": \"F32\"", "\"master_dtype\": \"BF16\""}, "master_dtype is BF16"},
      {{"\"gradient_dtype\": \"F32\"", "\"gradient_dtype\": \"F64\""}, "not F32"},
      {{"\"prefetch\": true", "\"prefetch\": 1"}, "prefetch"},
      {{"\"fits\": true", "\"fits\": null"}, "fits"},
      {{"trainctl.plan", "trainctl.flan"}, "schema"},
      {{"\"candidates\": [", "\"candidates\": [3,"}, "candidates[0]"},
  };
  for (const auto& [replacement, named] : damages) {
    const std::string damaged = absl::StrReplaceAll(text, {replacement});
    ASSERT_NE(damaged, text) << named;
    const absl::Status status = PlanFromJson(damaged, "plan.json").status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << named << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
  }
  // Every truncation but that of the final newline.
  for (size_t length = 0; length + 1 < text.size(); length += 7) {
    EXPECT_EQ(ExitCodeFor(PlanFromJson(absl::string_view(text).substr(0, length), "plan.json").status()),
              ExitCode::kBadData);
  }
}

}  // namespace
}  // namespace trainctl::planner
