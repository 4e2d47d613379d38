#include "recipe/resume.h"

#include "absl/strings/str_cat.h"
#include "recipe/recipe_json.h"
#include "recipe/schema.h"
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

TEST(Resume, AnOrderOfOnesOwnGivesWayToOneWithANameAndTheOtherWayRound) {
  FakeWorld world;
  world.files["/cwd/my.csv"] = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  const Recipe stored =
      Stored({"parallel.pp=2", "cluster.devices_per_node=2", "parallel.passes=[\"0F0,0B0\", \"1F0,1B0\"]"});
  ASSERT_EQ(stored.parallel.passes.size(), 2u);
  auto loaded = ApplyResumeSets(stored, std::vector<std::string>{"parallel.schedule=gpipe"}, world.access());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(loaded->recipe.parallel.passes.empty());
  loaded = ApplyResumeSets(loaded->recipe, std::vector<std::string>{"parallel.schedule_file=my.csv"},
                           world.access());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_FALSE(loaded->recipe.parallel.schedule.has_value());
  EXPECT_EQ(loaded->recipe.parallel.passes, (std::vector<std::string>{"0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"}));
  loaded = ApplyResumeSets(stored, std::vector<std::string>{"parallel.schedule_file=no.csv"}, world.access());
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("parallel.schedule_file: cannot open"));
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

// Fields of another backend or device too, which are not shown and so have no text of their default.
TEST(Resume, EveryFieldThatMayChangeCanBeTakenBack) {
  const Recipe stored = Stored();
  int taken_back = 0;
  for (const Field& field : GetSchema().fields()) {
    if (field.resume == Resume::kIdentity || !field.set) continue;
    const auto loaded = Resume(stored, {absl::StrCat(field.name, "=default")});
    taken_back += loaded.ok() ? 1 : 0;
  }
  EXPECT_GT(taken_back, 20);
  EXPECT_EQ(Resume(stored, {"launch.kubernetes.user=default"})->recipe.launch.kubernetes.user,
            Recipe().launch.kubernetes.user);
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
      "; it can change run.graphs, run.check_kernels, train.steps, train.tokens, train.epochs, "
      "train.micro_batch, train.z_loss, "
      "train.eval_every, "
      "train.eval_batches, train.on_nonfinite, optimizer.* (but name, betas, momentum), parallel.*, "
      "cluster.*, checkpoint.*, launch.*, metrics.*, plan.*";
  const auto refused = [&](const std::string& set, const std::string& what) {
    EXPECT_EQ(ResumeError({set}), absl::StrCat("--set ", set, ": a resumed run cannot change ", what, can));
  };
  const std::string data = ", which determines the data of each step";
  refused("optimizer.name=lion", "optimizer.name, which determines the optimizer's stored state");
  refused("optimizer.betas=default", "optimizer.betas, which determines the optimizer's stored state");
  refused("data.train[0].weight=0.5", "data.train" + data);
  refused("data={seq_len=5}", "data" + data);
  refused("run.seed=5", "run.seed" + data);
  refused("train.batch_sequences=24", "train.batch_sequences" + data);
  refused("train.batch_tokens=24K", "train.batch_tokens" + data);
  refused("model.layers=9", "model.layers, which determines the model");
  refused("train.precision=bf16", "train.precision, which determines how every step is computed");
  refused("run.name=other", "run.name");
}

TEST(Resume, AnExplicitSetChangesTheRateAndTheRemediesAndIsRecorded) {
  const Recipe stored = Stored({"optimizer.lr=1e-3", "optimizer.warmup_steps=10"});
  const auto loaded = Resume(stored, {"optimizer.lr=2e-4", "optimizer.warmup_steps=20", "optimizer.min_lr=0",
                                      "train.on_nonfinite=skip", "checkpoint.keep=9"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.optimizer.lr, 2e-4);
  EXPECT_EQ(loaded->recipe.optimizer.warmup_steps, 20);
  EXPECT_EQ(loaded->recipe.train.on_nonfinite, "skip");
  EXPECT_EQ(RecordedChanges(stored, loaded->recipe),
            (std::vector<std::string>{"train.on_nonfinite is \"skip\" and was \"stop\"",
                                      "optimizer.lr is 2e-4 and was 0.001",
                                      "optimizer.warmup_steps is 20 and was 10"}));
  EXPECT_TRUE(RecordedChanges(stored, Resume(stored, {"optimizer.lr=0.001"})->recipe).empty());
}

TEST(Resume, ARateGoesBackToTheDefaultOfItsOptimizer) {
  const Recipe stored = Stored({"optimizer.name=lion", "optimizer.lr=1.0", "optimizer.weight_decay=0.5"});
  const auto loaded = Resume(stored, {"optimizer.lr=default"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.optimizer.lr, 1e-4);
  EXPECT_EQ(loaded->recipe.optimizer.weight_decay, 0.5);
}

TEST(Resume, TheDecayMayBeStretchedToANewEnd) {
  const auto loaded = Resume(Stored(), {"train.steps=400", "optimizer.decay_steps=auto"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.optimizer.decay_steps, 400);
  EXPECT_EQ(RecordedChanges(Stored(), loaded->recipe),
            (std::vector<std::string>{"train.steps is 400 and was 100",
                                      "optimizer.decay_steps is 400 and was 100"}));
  EXPECT_EQ(RecordedChanges(Stored(), Resume(Stored(), {"train.steps=400"})->recipe),
            std::vector<std::string>{"train.steps is 400 and was 100"});
  // The end that a run had is not a change where its recipe still says auto.
  Recipe not_frozen = Stored();
  not_frozen.optimizer.decay_steps.reset();
  EXPECT_TRUE(RecordedChanges(not_frozen, Resume(not_frozen, {})->recipe).empty());
}

TEST(Resume, WhatChangesNothingIsSaid) {
  const Recipe stored = Stored({"optimizer.lr_schedule=constant"});
  const auto loaded = Resume(stored, {"optimizer.min_lr=1e-5"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->notes, ::testing::ElementsAre(HasSubstr("optimizer.min_lr has no effect")));
  EXPECT_TRUE(Resume(stored, {"checkpoint.keep=9"})->notes.empty());
}

TEST(Resume, StepsBeyondADecayToNothingAreANote) {
  const Recipe to_zero = Stored();
  const auto notes = [](const Recipe& stored, const std::vector<std::string>& sets) {
    return Resume(stored, sets)->notes;
  };
  EXPECT_THAT(notes(to_zero, {"train.steps=400"}),
              ::testing::ElementsAre(AllOf(HasSubstr("the learning rate is 0 starting at step 101"),
                                           HasSubstr("--set optimizer.decay_steps=auto"))));
  EXPECT_THAT(notes(to_zero, {}), ::testing::IsEmpty());
  EXPECT_THAT(notes(to_zero, {"train.steps=400", "optimizer.decay_steps=auto"}), ::testing::IsEmpty());
  EXPECT_THAT(notes(to_zero, {"train.steps=400", "optimizer.min_lr=1e-5"}), ::testing::IsEmpty());
  EXPECT_THAT(notes(Stored({"optimizer.lr_schedule=constant"}), {"train.steps=400"}), ::testing::IsEmpty());
}

TEST(Resume, ChangesAreCheckedLikeARecipe) {
  EXPECT_THAT(ResumeError({"cluster.devices_per_node=5"}), HasSubstr("is not a multiple of the 5 workers"));
  EXPECT_THAT(ResumeError({"train.stepz=5"}), HasSubstr("did you mean train.steps?"));
  EXPECT_THAT(ResumeError({"train.steps=0"}), HasSubstr("train.steps: 0 is out of range"));
  EXPECT_THAT(ResumeError({"optimizer.min_lr=1.0"}),
              HasSubstr("optimizer.min_lr (1.0) is above optimizer.lr"));
  EXPECT_THAT(ResumeError({"optimizer.momentum=0.5"}), HasSubstr("cannot change optimizer.momentum"));
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

  const auto rate = FakeWorld().Load(kMinimal, {"optimizer.lr=1.0"});
  EXPECT_EQ(
      ContinueAs(stored, *rate).status().message(),
      "optimizer.lr: is 1.0 and was 3e-4; only `trainctl resume --set` can change it in an existing run");
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

// Machines of another day: the table changes as a whole, and goes where nothing reads it.
TEST(Resume, TheMachinesOfARunMayChange) {
  const Recipe stored = Stored({"launch.backend=ssh", "launch.ssh.hosts=['n0', 'n1']",
                                "launch.ssh.options=['-v']", "launch.ssh.program=/opt/trainctl"});
  const auto resumed = [&](const std::vector<std::string>& sets) {
    const auto loaded = Resume(stored, sets);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->recipe.launch : LaunchConfig();
  };
  EXPECT_EQ(resumed({}).ssh.hosts, (std::vector<std::string>{"n0", "n1"}));
  EXPECT_EQ(resumed({"launch.ssh.hosts=['n2']"}).ssh.hosts, std::vector<std::string>{"n2"});
  const LaunchConfig by_file = resumed({"launch.ssh.hosts_file=hosts"});
  EXPECT_EQ(by_file.ssh.hosts_file, "/cwd/hosts");
  EXPECT_TRUE(by_file.ssh.hosts.empty());
  EXPECT_TRUE(resumed({"launch.ssh.options=default"}).ssh.options.empty());
  EXPECT_FALSE(resumed({"launch.ssh.program=default"}).ssh.program.has_value());
  EXPECT_EQ(resumed({"launch.backend=local"}).backend, "local");

  const auto continued = [&](const std::vector<std::string>& sets) {
    FakeWorld world;
    world.files["/cwd/hosts"] = "n2\n";
    const auto now = world.Load(kMinimal, sets);
    EXPECT_TRUE(now.ok()) << now.status();
    const auto next = ContinueAs(stored, *now);
    EXPECT_TRUE(next.ok()) << next.status();
    return next.ok() ? *next : Continuation();
  };
  const Continuation elsewhere = continued({"launch.backend=ssh", "launch.ssh.hosts_file=hosts"});
  const SshConfig& ssh = elsewhere.recipe.launch.ssh;
  EXPECT_TRUE(ssh.hosts.empty() && ssh.options.empty() && !ssh.program.has_value());
  EXPECT_EQ(ssh.hosts_file, "/cwd/hosts");
  EXPECT_THAT(elsewhere.changes, ::testing::Contains("launch.ssh.options is unset and was [\"-v\"]"));
  const std::string here = ToJson(continued({}).recipe);
  EXPECT_THAT(here, ::testing::Not(HasSubstr("\"ssh\"")));
  EXPECT_TRUE(RecipeFromJson(here, "here").ok());
}

}  // namespace
}  // namespace trainctl::recipe
