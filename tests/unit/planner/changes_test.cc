// Each change that is advised is made: the recipe with it has the plan that was promised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "layout/layout.h"
#include "model/presets.h"
#include "planner/advice.h"
#include "planner/make_plan.h"
#include "tests/unit/recipe/recipe_test_util.h"

namespace trainctl::planner {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

cluster::Host SomeHost() {
  cluster::Host host;
  host.allowed_cores = 4;
  host.memory_total_bytes = host.memory_available_bytes = int64_t{16} << 30;
  return host;
}

recipe::Recipe MustLoad(const std::string& parallel, const std::vector<std::string>& sets = {}) {
  const recipe::FakeWorld world;
  const std::string text = absl::StrCat(
      "recipe_version = 1\n[model]\npreset = 'llama3.1-8b'\n[data]\nseq_len = 8192\n[train]\nsteps = 10\n"
      "batch_sequences = 64\n[cluster]\ndevice = 'h100-sxm-80gb'\n[parallel]\n",
      parallel);
  const absl::StatusOr<recipe::LoadedRecipe> loaded =
      recipe::LoadRecipeText(text, "r.toml", sets, world.access(), recipe::Purpose::kPlan);
  TRAINCTL_CHECK_MSG(loaded.ok(), loaded.status().message());
  return loaded->recipe;
}

std::vector<Change> ChangesOf(const recipe::Recipe& recipe) {
  const absl::StatusOr<plan::Plan> plan = MakePlan(recipe, SomeHost());
  TRAINCTL_CHECK_MSG(plan.ok(), plan.status().message());
  return FindChanges(recipe, SomeHost(), nullptr, *plan);
}

TEST(Changes, DoWhatTheySay) {
  for (const char* parallel :
       {"", "tp = 2\nzero_stage = 1\nrecompute = 'full'\n", "pp = 4\nschedule = '1f1b'\n",
        "dp_replicate = 2\ndp_shard = 4\nzero_stage = 3\nrecompute = 'full'\nrecomputed_layers = [3]\n"}) {
    SCOPED_TRACE(parallel);
    const recipe::Recipe recipe = MustLoad(parallel);
    const absl::StatusOr<plan::Plan> plan = MakePlan(recipe, SomeHost());
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::vector<Change> changes = FindChanges(recipe, SomeHost(), nullptr, *plan);
    EXPECT_FALSE(changes.empty());
    EXPECT_LE(changes.size(), kMaxChanges);
    for (const Change& change : changes) {
      const recipe::Recipe changed = MustLoad(parallel, absl::StrSplit(change.setting, ", "));
      const absl::StatusOr<plan::Plan> made = MakePlan(changed, SomeHost());
      ASSERT_TRUE(made.ok()) << change.setting << ": " << made.status();
      EXPECT_EQ(made->layout, change.layout) << change.setting;
      EXPECT_EQ(made->predicted.peak_bytes, change.peak_bytes) << change.setting;
      const double speed = plan::Chosen(*plan).step_seconds / plan::Chosen(*made).step_seconds;
      EXPECT_NEAR(speed, change.speed, 1e-9) << change.setting;
      EXPECT_TRUE(speed > 1 || change.peak_bytes < plan->predicted.peak_bytes) << change.setting;
    }
  }
}

TEST(Changes, ASettingThatSlowsTheRunDownIsNamedFirst) {
  const std::vector<Change> changes = ChangesOf(MustLoad("recompute = 'full'\n"));
  ASSERT_FALSE(changes.empty());
  EXPECT_THAT(changes[0].setting, HasSubstr("parallel.recompute"));
  EXPECT_GT(changes[0].speed, 1.1);
  EXPECT_THAT(changes, Contains(Field(&Change::setting, "cluster.nodes = 2")));
}

// The search has chosen the fastest layout, and nothing is known about more machines.
TEST(Changes, APlanForThisMachineHasNothingFaster) {
  recipe::Recipe recipe = MustLoad("");
  recipe.model.spec = *model::Preset("toy-1m");
  recipe.cluster.device = "cpu";
  recipe.data.seq_len = 128;
  for (const Change& change : ChangesOf(recipe)) {
    EXPECT_LE(change.speed, 1.01) << change.setting;
    EXPECT_THAT(change.setting, testing::Not(HasSubstr("cluster.nodes")));
  }
}

}  // namespace
}  // namespace trainctl::planner
