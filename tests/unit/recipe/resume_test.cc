#include "recipe/resume.h"

#include "recipe/recipe_json.h"
#include "recipe_test_util.h"

namespace trainctl::recipe {
namespace {

using ::testing::HasSubstr;

Recipe Stored(const std::vector<std::string>& sets = {}) {
  absl::StatusOr<LoadedRecipe> loaded = FakeWorld().Load(kMinimal, sets);
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.status();
    return {};
  }
  FreezeForRun(loaded->recipe);
  return *RecipeFromJson(ToJson(loaded->recipe), "stored");
}

absl::StatusOr<LoadedRecipe> Resume(const Recipe& stored, const std::vector<std::string>& sets) {
  return ApplyResumeSets(stored, sets, FakeWorld().access());
}

TEST(Resume, WithoutChangesTheStoredRecipeComesBack) {
  const Recipe stored = Stored();
  const auto loaded = Resume(stored, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(ToJson(loaded->recipe), ToJson(stored));
  EXPECT_EQ(loaded->origin.at("train.steps"), "the stored recipe");
}

TEST(Resume, ALongerRunDoesNotBendTheLearningRatesOfThePast) {
  const Recipe stored = Stored();
  EXPECT_EQ(stored.optimizer.decay_steps, 100);
  auto loaded = Resume(stored, {"train.steps=400"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.train.steps, 400);
  EXPECT_EQ(loaded->recipe.optimizer.decay_steps, 100);
  loaded = Resume(stored, {"train.tokens=153_601"});  // 12 x 128 tokens a step
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.train.steps, 101);
  EXPECT_EQ(loaded->recipe.optimizer.decay_steps, 100);
}

TEST(Resume, TheLayoutMayChange) {
  const Recipe stored = Stored({"cluster.devices_per_node=4", "parallel.zero_stage=3", "launch.env.A=1"});
  const auto loaded = Resume(stored, {"cluster.devices_per_node=3", "parallel.zero_stage=1",
                                      "checkpoint.keep=9", "launch.env.B=2", "metrics.every_steps=5"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.cluster.devices_per_node, 3);
  EXPECT_EQ(loaded->recipe.parallel.zero_stage, 1);
  EXPECT_EQ(loaded->recipe.checkpoint.keep, 9);
  EXPECT_EQ(loaded->recipe.launch.env, (StringMap{{"A", "1"}, {"B", "2"}}));
  EXPECT_EQ(loaded->origin.at("parallel.zero_stage"), "--set");
}

TEST(Resume, DefaultTakesAStoredValueBack) {
  const Recipe stored = Stored({"cluster.devices_per_node=4", "parallel.zero_stage=3", "launch.env.A=1",
                                "launch.env.B=2", "checkpoint.every_steps=7"});
  const auto loaded =
      Resume(stored, {"parallel.zero_stage=default", "launch.env.A=default", "checkpoint=default"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_FALSE(loaded->recipe.parallel.zero_stage.has_value());
  EXPECT_EQ(loaded->recipe.launch.env, (StringMap{{"B", "2"}}));
  EXPECT_EQ(loaded->recipe.checkpoint.every_steps, 10);
}

TEST(Resume, TimeReplacesAnIntervalThatNobodyWrote) {
  const auto by_time = Resume(Stored(), {"checkpoint.every=10m"});
  ASSERT_TRUE(by_time.ok()) << by_time.status();
  EXPECT_EQ(by_time->recipe.checkpoint.every, absl::Minutes(10));
  EXPECT_FALSE(by_time->recipe.checkpoint.every_steps.has_value());

  const auto both = Resume(Stored({"checkpoint.every_steps=7"}), {"checkpoint.every=10m"});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->recipe.checkpoint.every_steps, 7);
}

std::string ResumeError(const std::vector<std::string>& sets) {
  const auto loaded = Resume(Stored(), sets);
  if (loaded.ok()) return "OK";
  EXPECT_EQ(ExitCodeFor(loaded.status()), ExitCode::kUsage);
  return std::string(loaded.status().message());
}

TEST(Resume, WhatMakesTheRunCannotChange) {
  const std::string can =
      "; it can change train.steps, train.tokens, train.micro_batch, parallel.*, cluster.*, checkpoint.*, "
      "launch.*, metrics.*, plan.*";
  EXPECT_EQ(ResumeError({"optimizer.lr=1.0"}),
            "--set optimizer.lr=1.0: a resumed run cannot change optimizer.lr" + can);
  EXPECT_EQ(ResumeError({"optimizer.lr=default"}),
            "--set optimizer.lr=default: a resumed run cannot change optimizer.lr" + can);
  EXPECT_EQ(ResumeError({"data.train[0].weight=0.5"}),
            "--set data.train[0].weight=0.5: a resumed run cannot change data.train" + can);
  EXPECT_EQ(ResumeError({"data={seq_len=5}"}),
            "--set data={seq_len=5}: a resumed run cannot change data" + can);
  EXPECT_EQ(ResumeError({"model.layers=9"}),
            "--set model.layers=9: a resumed run cannot change model.layers" + can);
}

TEST(Resume, ChangesAreCheckedLikeARecipe) {
  EXPECT_THAT(ResumeError({"cluster.devices_per_node=5"}), HasSubstr("is not a multiple of the 5 workers"));
  EXPECT_THAT(ResumeError({"train.stepz=5"}), HasSubstr("did you mean train.steps?"));
  EXPECT_THAT(ResumeError({"train.steps=0"}), HasSubstr("train.steps: 0 is out of range"));
  EXPECT_THAT(ResumeError({"train.steps=default"}), HasSubstr("train.steps is missing"));
}

TEST(Resume, TheSameRecipeContinuesItsRun) {
  const Recipe stored = Stored();
  const auto again = FakeWorld().Load(kMinimal);
  ASSERT_TRUE(again.ok()) << again.status();
  const auto recipe = ContinueAs(stored, *again);
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  EXPECT_EQ(ToJson(recipe->recipe), ToJson(stored));
  EXPECT_TRUE(recipe->changes.empty()) << recipe->changes[0];
}

TEST(Resume, ARecipeThatWasEditedContinuesItsRunOrNamesWhatItCannotChange) {
  Recipe stored = Stored();
  stored.train.precision = "bf16";  // what "auto" had become
  const auto longer = FakeWorld().Load(kMinimal, {"train.steps=400", "checkpoint.keep=9",
                                                  "parallel.zero_stage=2", "cluster.devices_per_node=2"});
  ASSERT_TRUE(longer.ok()) << longer.status();
  const auto next = ContinueAs(stored, *longer);
  ASSERT_TRUE(next.ok()) << next.status();
  const Recipe* recipe = &next->recipe;
  EXPECT_EQ(recipe->train.steps, 400);
  EXPECT_EQ(recipe->optimizer.decay_steps, 100);  // the past learning rates stay
  EXPECT_EQ(recipe->checkpoint.keep, 9);
  EXPECT_EQ(recipe->parallel.zero_stage, 2);
  EXPECT_EQ(recipe->train.precision, "bf16");

  const auto other = FakeWorld().Load(
      kMinimal, {"run.seed=7", "model.layers=3", "data.train[0].files=[\"a.txt\", \"b.txt\"]"});
  ASSERT_TRUE(other.ok()) << other.status();
  const std::string message(ContinueAs(stored, *other).status().message());
  EXPECT_THAT(message, HasSubstr("run.seed: is 7 and was 1234"));
  EXPECT_THAT(message, HasSubstr("model.layers: is 3 and was"));
  EXPECT_THAT(message, HasSubstr("data.train[0].files"));
}

// What the recipe no longer says holds no more, as in a new run.
TEST(Resume, AValueThatWasTakenOutOfTheRecipeGoesBackToAuto) {
  const auto next = [](const std::vector<std::string>& before, const std::vector<std::string>& now) {
    const auto loaded = FakeWorld().Load(kMinimal, now);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    auto continued = ContinueAs(Stored(before), *loaded);
    EXPECT_TRUE(continued.ok()) << continued.status();
    return *std::move(continued);
  };
  Continuation next_run = next({"cluster.memory_limit=21MiB"}, {});
  EXPECT_FALSE(next_run.recipe.cluster.memory_limit_bytes.has_value());
  EXPECT_EQ(next_run.changes,
            std::vector<std::string>({"cluster.memory_limit is \"auto\" and was \"21MiB\""}));

  next_run = next({"cluster.devices_per_node=2", "parallel.zero_stage=3"}, {});
  EXPECT_EQ(next_run.recipe.cluster.devices_per_node, 1);
  EXPECT_FALSE(next_run.recipe.parallel.zero_stage.has_value());
  EXPECT_EQ(next_run.changes.size(), 2);

  // By steps unless told otherwise, then by time, then by steps again: kMinimal has 100 steps.
  next_run = next({}, {"checkpoint.every=30m"});
  EXPECT_EQ(next_run.recipe.checkpoint.every, absl::Minutes(30));
  EXPECT_FALSE(next_run.recipe.checkpoint.every_steps.has_value());
  next_run = next({"checkpoint.every=30m"}, {});
  EXPECT_FALSE(next_run.recipe.checkpoint.every.has_value());
  EXPECT_EQ(next_run.recipe.checkpoint.every_steps, 10);

  next_run = next({"launch.env.A=1"}, {});
  EXPECT_TRUE(next_run.recipe.launch.env.empty());
  next_run = next({"train.micro_batch=2"}, {});
  EXPECT_FALSE(next_run.recipe.train.micro_batch.has_value());
}

TEST(Resume, WhereTheCommandIsGivenDoesNotMatter) {
  const auto again = FakeWorld().Load(kMinimal, {"run.root=/elsewhere", "run.name=other"});
  ASSERT_TRUE(again.ok()) << again.status();
  const Recipe stored = Stored();
  const auto next = ContinueAs(stored, *again);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->recipe.run.root, stored.run.root);
}

}  // namespace
}  // namespace trainctl::recipe
