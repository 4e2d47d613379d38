#include "recipe/epochs.h"

#include "absl/strings/str_replace.h"
#include "recipe/derive.h"
#include "recipe/fixed_fields.h"
#include "recipe/recipe_json.h"
#include "recipe/resume.h"
#include "recipe_test_util.h"

namespace trainctl::recipe {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// 12 sequences of 128 tokens: 1536 tokens a step.
const std::string& OneEpoch() {
  static const auto* const text =
      new std::string(absl::StrReplaceAll(kMinimal, {{"steps = 100", "epochs = 1"}}));
  return *text;
}

class EpochsTest : public ::testing::Test {
 protected:
  Access CountingAccess() {
    Access access = world_.access();
    access.count_epoch_tokens = [this](const Recipe& recipe) -> absl::StatusOr<int64_t> {
      ++num_counts_;
      EXPECT_FALSE(recipe.data.train.empty());
      return epoch_tokens_;
    };
    return access;
  }

  absl::StatusOr<LoadedRecipe> Load(const std::string& text, const std::vector<std::string>& sets = {},
                                    Purpose purpose = Purpose::kTrain) {
    return LoadRecipeText(text, "r.toml", sets, CountingAccess(), purpose);
  }

  std::string Error(const std::string& text, const std::vector<std::string>& sets = {}) {
    return std::string(Load(text, sets).status().message());
  }

  FakeWorld world_;
  absl::StatusOr<int64_t> epoch_tokens_ = 153'600;  // 100 steps
  int num_counts_ = 0;
};

TEST(StepsForEpochs, EndAtTheBorderOfAnEpochRoundedUpToAStep) {
  Recipe recipe;
  recipe.train.batch_sequences = 10;
  recipe.data.seq_len = 10;
  EXPECT_EQ(StepsForEpochs(recipe, 1, 1000), 10);
  EXPECT_EQ(StepsForEpochs(recipe, 1, 1001), 11);
  EXPECT_EQ(StepsForEpochs(recipe, 1, 999), 10);
  EXPECT_EQ(StepsForEpochs(recipe, 3, 1050), 32);  // 31.5
  EXPECT_EQ(StepsForEpochs(recipe, 0.5, 1050), 6);
  EXPECT_EQ(StepsForEpochs(recipe, 1e-6, 1000), 1) << "at least one";
  // In binary, 0.07 x 100,000 is 7000.000000000001.
  EXPECT_EQ(StepsForEpochs(recipe, 0.07, 100'000), 70);
  for (int64_t epochs = 1; epochs <= 1000; ++epochs) {
    EXPECT_EQ(StepsForEpochs(recipe, static_cast<double>(epochs), int64_t{100'000'000'000}),
              1'000'000'000 * epochs);
    EXPECT_EQ(StepsForEpochs(recipe, static_cast<double>(epochs) / 1000, 100'000), epochs);
  }
}

TEST_F(EpochsTest, BecomeStepsBeforeAnythingDependsOnThem) {
  const auto loaded = Load(OneEpoch(), {"train.epochs=2.5"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.train.steps, 250);
  EXPECT_FALSE(loaded->recipe.train.epochs.has_value());
  EXPECT_EQ(loaded->origin.at("train.steps"), "--set (train.epochs)");
  EXPECT_EQ(loaded->recipe.checkpoint.every_steps, 25);
  EXPECT_EQ(num_counts_, 1);
  Recipe recipe = loaded->recipe;
  FreezeForRun(recipe);
  EXPECT_EQ(recipe.optimizer.decay_steps, 250);
  EXPECT_THAT(ToJson(recipe), Not(HasSubstr("epochs")));
  EXPECT_TRUE(RecipeFromJson(ToJson(recipe), "stored").ok());

  EXPECT_EQ(
      Error(OneEpoch(), {"optimizer.warmup_steps=100"}),
      "--set: optimizer.warmup_steps (100) leaves no steps for the cosine decay, which ends at step 100 "
      "(train.steps); pass --set optimizer.warmup_steps=99 (or fewer)");
  EXPECT_EQ(Error(OneEpoch(), {"optimizer.warmup_steps=81", "optimizer.lr_schedule=wsd"}),
            "--set: optimizer.warmup_steps (81) leaves no steps for the wsd decay, which ends at step 100 "
            "(train.steps) and covers the last 0.2 of it; pass --set optimizer.warmup_steps=80 (or fewer)");
  EXPECT_EQ(Error(OneEpoch(), {"metrics.trace_steps=[101]"}),
            "--set: metrics.trace_steps: step 101 is beyond train.steps (100)");
  EXPECT_TRUE(Load(OneEpoch(), {"metrics.trace_steps=[100]", "optimizer.warmup_steps=99"}).ok());
  EXPECT_THAT(Load(OneEpoch(), {"optimizer.decay_steps=50"})->notes,
              ElementsAre(HasSubstr("the learning rate is 0 starting at step 51")));
  epoch_tokens_ = int64_t{1} << 62;
  EXPECT_THAT(Error(OneEpoch(), {"train.epochs=1000"}), HasSubstr("the limit is 4e18"));
}

TEST_F(EpochsTest, TheDataIsCountedOnlyIfNothingElseIsWrong) {
  EXPECT_THAT(Error(OneEpoch(), {"parallel.zero_stage=9"}), HasSubstr("parallel.zero_stage"));
  EXPECT_THAT(Error(OneEpoch(), {"cluster.devices_per_node=5"}), HasSubstr("train.batch_sequences"));
  EXPECT_EQ(num_counts_, 0);
  epoch_tokens_ = BadDataError("/cwd/a.txt is damaged");
  const absl::Status status = Load(OneEpoch()).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_EQ(status.message(),
            "r.toml:9:1: train.epochs: cannot count the tokens of an epoch: /cwd/a.txt is damaged");
  EXPECT_EQ(ErrorOf(OneEpoch()),
            "r.toml:9:1: train.epochs: this command does not count the data; set train.steps or train.tokens "
            "instead");
}

TEST_F(EpochsTest, APlanWithoutDataHasNoLength) {
  epoch_tokens_ = BadDataError("no such data file: /cwd/missing.txt");
  const auto planned = Load(OneEpoch(), {"data.train[0].files=['missing.txt']"}, Purpose::kPlan);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->recipe.train.steps, 0);
  EXPECT_EQ(planned->recipe.train.epochs, 1);
  EXPECT_THAT(planned->missing, ElementsAre(HasSubstr("no file matches /cwd/missing.txt")));
  EXPECT_EQ(planned->unknown_length.message(),
            "r.toml:9:1: train.epochs: cannot count the tokens of an epoch: no such data file: "
            "/cwd/missing.txt");
  // The recipe that `plan --write` makes keeps the author's field.
  EXPECT_THAT(FixedFields(*planned, 1, "fp32").ToToml(),
              AllOf(HasSubstr("\nepochs = 1.0"), Not(HasSubstr("\nsteps"))));

  epoch_tokens_ = 153'600;
  const auto counted = Load(OneEpoch(), {}, Purpose::kPlan);
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_TRUE(counted->unknown_length.ok());
  EXPECT_THAT(FixedFields(*counted, 1, "fp32").ToToml(),
              AllOf(HasSubstr("\nsteps = 100"), Not(HasSubstr("epochs ="))));
}

TEST_F(EpochsTest, AWhatIfReadsNoData) {
  const auto loaded =
      Load(OneEpoch(), {"plan.framework=torchtitan", "cluster.device=h100"}, Purpose::kWhatIf);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->purpose, Purpose::kWhatIf);
  EXPECT_EQ(num_counts_, 0);
  EXPECT_THAT(loaded->notes,
              Contains(HasSubstr("r.toml:9:1: train.epochs: estimates of other trainers read no data")));
}

TEST_F(EpochsTest, ALaterLayerReplacesOtherLengths) {
  EXPECT_EQ(Load(OneEpoch(), {"train.steps=7"})->recipe.train.steps, 7);
  EXPECT_EQ(Load(OneEpoch(), {"train.tokens=1537"})->recipe.train.steps, 2);
  EXPECT_EQ(num_counts_, 0);
  EXPECT_EQ(Load(kMinimal, {"train.epochs=2"})->recipe.train.steps, 200);
  EXPECT_EQ(Error(OneEpoch(), {"train.steps=7", "train.epochs=2"}),
            "--set train.epochs=2: train.epochs and train.steps (--set train.steps=7) exclude each other; "
            "set only one of them");
}

TEST_F(EpochsTest, AResumedRunCountsFromItsBeginning) {
  Recipe stored = Load(OneEpoch())->recipe;
  FreezeForRun(stored);
  const auto resume = [&](const std::vector<std::string>& sets) {
    return ApplyResumeSets(stored, sets, CountingAccess());
  };
  num_counts_ = 0;
  EXPECT_EQ(resume({})->recipe.train.steps, 100);
  EXPECT_EQ(num_counts_, 0) << "the stored steps are the length";
  const auto longer = resume({"train.epochs=4"});
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ(longer->recipe.train.steps, 400);
  EXPECT_EQ(longer->recipe.optimizer.decay_steps, 100);
  EXPECT_FALSE(longer->recipe.train.epochs.has_value());
  EXPECT_EQ(longer->origin.at("train.steps"), "--set (train.epochs)");
  EXPECT_EQ(resume({"train.epochs=4", "optimizer.decay_steps=auto"})->recipe.optimizer.decay_steps, 400);
  EXPECT_EQ(resume({"train.epochs=default"})->recipe.train.steps, 100);
  const auto error = [&](const std::vector<std::string>& sets) {
    return std::string(resume(sets).status().message());
  };
  EXPECT_THAT(error({"train.epochs=2", "train.tokens=1M"}), HasSubstr("exclude each other"));
  EXPECT_THAT(error({"train.epochs=0"}), HasSubstr("train.epochs: 0 is out of range"));
  EXPECT_EQ(error({"train.epochs=2", "metrics.trace_steps=[201]"}),
            "--set: metrics.trace_steps: step 201 is beyond train.steps (200)");
  epoch_tokens_ = BadDataError("no such data file: /cwd/a.txt");
  EXPECT_EQ(ExitCodeFor(resume({"train.epochs=2"}).status()), ExitCode::kBadData);

  // The recipe that is launched again with more epochs.
  epoch_tokens_ = 153'600;
  const auto next = ContinueAs(stored, *Load(OneEpoch(), {"train.epochs=3"}));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->recipe.train.steps, 300);
  EXPECT_THAT(next->changes, Contains("train.steps is 300 and was 100"));
}

TEST_F(EpochsTest, SourcesWithAWeightHaveNoEpoch) {
  const std::string two = absl::StrReplaceAll(
      OneEpoch(), {{"[train]", "weight = 0.5\n[[data.train]]\nfiles = ['b.txt']\nweight = 0.5\n[train]"}});
  EXPECT_EQ(Error(two),
            "r.toml:13:1: train.epochs: sources with weights have no common epoch, because each is repeated "
            "at its own rate; set train.steps or train.tokens instead, or remove the weights");
  EXPECT_EQ(num_counts_, 0);
  Recipe stored = Load(two, {"train.steps=10"})->recipe;
  FreezeForRun(stored);
  EXPECT_THAT(
      std::string(ApplyResumeSets(stored, std::vector<std::string>{"train.epochs=2"}, CountingAccess())
                      .status()
                      .message()),
      HasSubstr("sources with weights have no common epoch"));
  EXPECT_TRUE(Load(OneEpoch(), {"data.train[0].weight=0.5"}).ok()) << "one source has an epoch";
}

}  // namespace
}  // namespace trainctl::recipe
