#include "recipe/load.h"

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/wildcard.h"
#include "model/config_json.h"
#include "model/families.h"
#include "model/parameters.h"
#include "model/presets.h"
#include "recipe/recipe_json.h"
#include "recipe_test_util.h"

namespace trainctl::recipe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LoadedRecipe MustLoad(const std::string& text, const std::vector<std::string>& sets = {}) {
  absl::StatusOr<LoadedRecipe> loaded = FakeWorld().Load(text, sets);
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.status();
    return {};
  }
  return *std::move(loaded);
}

TEST(LoadRecipe, AMinimalRecipeTakesEveryOtherValueFromTheDefaults) {
  const LoadedRecipe loaded = MustLoad(kMinimal);
  const Recipe& recipe = loaded.recipe;
  EXPECT_EQ(recipe.model.preset, "toy-1m");
  EXPECT_EQ(recipe.model.spec, *model::Preset("toy-1m"));
  EXPECT_EQ(recipe.data.tokenizer, "byte");
  EXPECT_EQ(recipe.data.train.size(), 1u);
  EXPECT_EQ(recipe.data.train[0].name, "train-0");
  EXPECT_THAT(recipe.data.train[0].files, ElementsAre("/cwd/a.txt"));
  EXPECT_EQ(recipe.train.steps, 100);
  EXPECT_EQ(recipe.optimizer.lr, OptimizerConfig().lr);
  EXPECT_FALSE(recipe.parallel.zero_stage.has_value());
  EXPECT_EQ(recipe.checkpoint.every_steps, 10);  // a tenth of the run
  EXPECT_EQ(recipe.run.root, "/cwd/runs");
  EXPECT_EQ(loaded.origin.at("train.steps"), "r.toml:9:1");
  EXPECT_EQ(loaded.origin.at("optimizer.lr"), "default");
  EXPECT_EQ(loaded.origin.at("model.hidden"), "r.toml:3:1 (model.preset)");
}

TEST(LoadRecipe, AShortRunDoesNotSaveAtEveryStep) {
  const auto interval = [](const char* steps) {
    return *FakeWorld().Load(kMinimal, {absl::StrCat("train.steps=", steps)})->recipe.checkpoint.every_steps;
  };
  EXPECT_EQ(interval("12"), 10);
  EXPECT_EQ(interval("100"), 10);
  EXPECT_EQ(interval("120"), 12);
  EXPECT_EQ(interval("50_000"), 1000);
}

// A stored run has the passes, whatever becomes of the file.
TEST(LoadRecipe, AScheduleFileBecomesThePassesOfEachRank) {
  FakeWorld world;
  world.files["/cwd/my.csv"] = "0F0,0F1,,0B0,0B1\r\n,1F0,1B0,1F1,1B1\n";
  const std::vector<std::string> sets = {"parallel.pp=2", "cluster.devices_per_node=2",
                                         "parallel.schedule_file=my.csv"};
  const absl::StatusOr<LoadedRecipe> loaded = world.Load(kMinimal, sets);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->recipe.parallel.passes, ElementsAre("0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"));
  EXPECT_EQ(loaded->recipe.parallel.schedule_file, "");
  EXPECT_EQ(loaded->origin.at("parallel.passes"), "--set (parallel.schedule_file)");
  const absl::StatusOr<Recipe> again = RecipeFromJson(ToJson(loaded->recipe), "recipe.json");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->parallel.passes, loaded->recipe.parallel.passes);
  world.files["/cwd/my.csv"] = "0F0,0B0\n1F0,1X0\n";
  EXPECT_THAT(world.Load(kMinimal, sets).status().message(),
              HasSubstr("--set: parallel.schedule_file: /cwd/my.csv:2:5: '1X0' is not a pass"));
}

// lr, weight decay and what else an optimizer reads have its own defaults unless the recipe states them.
TEST(LoadRecipe, AnOptimizerHasDefaultsOfItsOwn) {
  const OptimizerConfig lion = MustLoad(kMinimal, {"optimizer.name=lion"}).recipe.optimizer;
  EXPECT_EQ(lion.lr, 1e-4);
  EXPECT_EQ(lion.weight_decay, 0.3);
  EXPECT_EQ(lion.beta1, 0.9);
  EXPECT_EQ(lion.beta2, 0.99);
  const LoadedRecipe loaded =
      MustLoad(kMinimal, {"optimizer.name=sgd", "optimizer.lr=0.01", "optimizer.min_lr=0.005"});
  EXPECT_EQ(loaded.recipe.optimizer.lr, 0.01);
  EXPECT_EQ(loaded.recipe.optimizer.weight_decay, 1e-4);
  EXPECT_EQ(loaded.recipe.optimizer.momentum, 0.9);
  EXPECT_EQ(loaded.origin.at("optimizer.momentum"), "default");
  EXPECT_EQ(loaded.origin.at("optimizer.lr"), "--set");
}

TEST(LoadRecipe, SetIsReadByTheTypeOfTheField) {
  const Recipe recipe =
      MustLoad(kMinimal,
               {"train.steps=1_000", "optimizer.lr=1e-2", "optimizer.betas=[0.8, 0.99]", "run.name=a b=c",
                "optimizer.name='adamw'", "data.shuffle=false", "data.train[0].weight=0.5",
                "checkpoint.every=90s", "cluster.memory_limit=1.5GiB", "launch.env.LEVEL=3",
                "parallel.recomputed_layers=2", "launch.env={OTHER=\"x\"}", "parallel.recompute=full",
                "parallel.dp_shard=auto", "optimizer.warmup_steps=0.02K"})
          .recipe;
  EXPECT_EQ(recipe.train.steps, 1000);
  EXPECT_EQ(recipe.optimizer.lr, 0.01);
  EXPECT_EQ(recipe.optimizer.beta1, 0.8);
  EXPECT_EQ(recipe.optimizer.beta2, 0.99);
  EXPECT_EQ(recipe.run.name, "a b=c");
  EXPECT_FALSE(recipe.data.shuffle);
  EXPECT_EQ(recipe.data.train[0].weight, 0.5);
  EXPECT_EQ(recipe.checkpoint.every, absl::Seconds(90));
  EXPECT_FALSE(recipe.checkpoint.every_steps.has_value());  // by time only
  EXPECT_EQ(recipe.cluster.memory_limit_bytes, int64_t{3} << 29);
  EXPECT_EQ(recipe.launch.env, (StringMap{{"LEVEL", "3"}, {"OTHER", "x"}}));
  EXPECT_EQ(recipe.parallel.recompute, "full");
  EXPECT_EQ(recipe.parallel.recomputed_layers, std::vector<int64_t>{2}) << "a number is a list of one";
  EXPECT_FALSE(recipe.parallel.dp_shard.has_value());
  EXPECT_EQ(recipe.optimizer.warmup_steps, 20);
}

TEST(LoadRecipe, SetDefaultTakesAValueBack) {
  const std::string text = absl::StrCat(kMinimal, "[launch.env]\nA = '1'\nB = '2'\n[optimizer]\nlr = 1.0\n");
  const LoadedRecipe loaded =
      MustLoad(text, {"optimizer.lr=default", "launch.env.A=default", "train.batch_sequences=default"});
  EXPECT_EQ(loaded.recipe.optimizer.lr, OptimizerConfig().lr);
  EXPECT_EQ(loaded.origin.at("optimizer.lr"), "default");
  EXPECT_EQ(loaded.recipe.launch.env, (StringMap{{"B", "2"}}));
  EXPECT_EQ(loaded.recipe.train.batch_sequences, 262144 / 128);
  // A string that reads "default" is quoted.
  EXPECT_EQ(MustLoad(kMinimal, {"run.name='default'"}).recipe.run.name, "default");
}

TEST(LoadRecipe, TheLastOfSeveralSetsWins) {
  EXPECT_EQ(MustLoad(kMinimal, {"train.steps=5", "train.steps=6"}).recipe.train.steps, 6);
}

TEST(LoadRecipe, LayersMergeTablesAndReplaceLists) {
  FakeWorld world;
  world.files["/cwd/base/a.toml"] = R"(
[model]
preset = "toy-1m"
[data]
seq_len = 64
[[data.train]]
files = ["x/*.txt"]
[[data.train]]
files = ["y.txt"]
[optimizer]
lr = 0.5
weight_decay = 0.25
betas = [0.1, 0.2]
[launch.env]
A = "base"
B = "base"
)";
  world.files["/cwd/base/b.toml"] = "extends = \"a.toml\"\n[optimizer]\nlr = 0.125\n";
  const auto loaded = world.Load(R"(extends = "base/b.toml"
[train]
steps = 10
batch_sequences = 4
[optimizer]
betas = [0.3, 0.4]
[launch.env]
B = "own"
)");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Recipe& recipe = loaded->recipe;
  EXPECT_EQ(recipe.optimizer.lr, 0.125);
  EXPECT_EQ(recipe.optimizer.weight_decay, 0.25);
  EXPECT_EQ(recipe.optimizer.beta1, 0.3);
  EXPECT_EQ(recipe.launch.env, (StringMap{{"A", "base"}, {"B", "own"}}));
  // Paths are relative to the file that states them.
  EXPECT_THAT(recipe.data.train[0].files, ElementsAre("/cwd/base/x/0.txt", "/cwd/base/x/1.txt"));
  EXPECT_EQ(loaded->origin.at("optimizer.lr"), "base/b.toml:3:1");
  EXPECT_EQ(loaded->origin.at("optimizer.weight_decay"), "base/a.toml:12:1");
  EXPECT_EQ(loaded->origin.at("launch.env.B"), "r.toml:8:1");

  const auto replaced = world.Load(R"(extends = ["base/b.toml"]
[train]
steps = 10
batch_sequences = 4
[[data.train]]
files = ["z.txt"]
)");
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(replaced->recipe.data.train.size(), 1u);
  EXPECT_THAT(replaced->recipe.data.train[0].files, ElementsAre("/cwd/z.txt"));
}

TEST(LoadRecipe, ALaterLayerReplacesTheOtherFieldsOfAGroup) {
  FakeWorld world;
  world.files["/cwd/base.toml"] = kMinimal;
  const auto loaded = world.Load(
      "extends = 'base.toml'\n[train]\ntokens = '1M'\nbatch_tokens = '1280'\n[model]\nfamily = 'llama'\n"
      "layers = 2\nhidden = 64\nheads = 4\nffn = 96\nvocab = 300\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.train.batch_sequences, 10);
  EXPECT_EQ(loaded->recipe.train.steps, 782);  // 1,000,000 / 1280 = 781.25
  EXPECT_EQ(loaded->recipe.model.preset, "");
  EXPECT_EQ(AttentionOf(loaded->recipe.model.spec).kv_heads, 4);
  EXPECT_EQ(AttentionOf(loaded->recipe.model.spec).head_dim, 16);
  EXPECT_EQ(loaded->origin.at("train.steps"), "r.toml:3:1 (train.tokens)");
  EXPECT_EQ(MustLoad(kMinimal, {"train.tokens=1536"}).recipe.train.steps, 1);
  EXPECT_EQ(MustLoad(kMinimal, {"train.tokens=1537"}).recipe.train.steps, 2);
}

TEST(LoadRecipe, DimensionsBesideAPresetOverrideIt) {
  const model::Architecture base = *model::Preset("toy-1m");
  model::Architecture spec = MustLoad(kMinimal, {"model.layers=2", "model.vocab=300"}).recipe.model.spec;
  EXPECT_EQ(NumLayers(spec), 2);
  EXPECT_EQ(spec.vocab, 300);
  EXPECT_EQ(spec.hidden, base.hidden);
  // The size of a head follows hidden and heads when it did so in the preset.
  spec = MustLoad(kMinimal, {"model.hidden=256"}).recipe.model.spec;
  EXPECT_EQ(AttentionOf(spec).head_dim, 256 / AttentionOf(base).heads);
  spec = MustLoad(kMinimal, {"model.hidden=256", "model.head_dim=32"}).recipe.model.spec;
  EXPECT_EQ(AttentionOf(spec).head_dim, 32);
}

TEST(LoadRecipe, RopeScalingCanBeAddedChangedAndDropped) {
  EXPECT_FALSE(MustLoad(kMinimal).recipe.model.spec.rope.scaling.has_value());
  const auto added = MustLoad(kMinimal, {"model.rope_scaling={factor=4.0}"}).recipe.model.spec.rope.scaling;
  ASSERT_TRUE(added.has_value());
  EXPECT_EQ(*added, (model::RopeScaling{.factor = 4.0}));
  const std::vector<std::string> scaled = {"model.preset=llama3.2-1b"};
  ASSERT_EQ(MustLoad(kMinimal, scaled).recipe.model.spec.rope.scaling->factor, 32.0);
  const auto changed =
      MustLoad(kMinimal, {scaled[0], "model.rope_scaling.low_freq_factor=2"}).recipe.model.spec.rope.scaling;
  EXPECT_EQ(*changed, (model::RopeScaling{.factor = 32.0, .low_freq_factor = 2.0}));
  EXPECT_FALSE(
      MustLoad(kMinimal, {scaled[0], "model.rope_scaling=none"}).recipe.model.spec.rope.scaling.has_value());
}

// The numbers of one type of scaling mean something else in another.
TEST(LoadRecipe, ATypeOfRopeScalingHasOnlyItsOwnFields) {
  const auto scaling = [](const std::string& table) {
    return *MustLoad(kMinimal, {"model.preset=llama3.2-1b", table}).recipe.model.spec.rope.scaling;
  };
  using model::RopeScalingKind;
  EXPECT_EQ(scaling("model.rope_scaling={type='yarn', factor=4, original_max_position=4096, beta_slow=2}"),
            (model::RopeScaling{
                .factor = 4, .original_max_position = 4096, .kind = RopeScalingKind::kYarn, .beta_slow = 2}));
  EXPECT_EQ(scaling("model.rope_scaling={type='linear', factor=4}"),
            (model::RopeScaling{.factor = 4, .kind = RopeScalingKind::kLinear}));
  EXPECT_EQ(scaling("model.rope_scaling={type='llama3', factor=4}"), (model::RopeScaling{.factor = 4}));
  const auto error = [](const std::string& table) {
    return std::string(FakeWorld().Load(kMinimal, {table}).status().message());
  };
  EXPECT_THAT(error("model.rope_scaling={type='yarn', factor=4}"),
              HasSubstr("model.rope_scaling.original_max_position is missing; yarn scaling requires it"));
  EXPECT_THAT(error("model.rope_scaling={type='linear'}"), HasSubstr("model.rope_scaling.factor is missing"));
  EXPECT_THAT(error("model.rope_scaling={type='longrope', original_max_position=9}"),
              AllOf(HasSubstr("attention_factor is missing"), HasSubstr("short_factor is missing"),
                    HasSubstr("long_factor is missing")));
  EXPECT_THAT(error("model.rope_scaling={type='linear', factor=2, beta_fast=3}"),
              HasSubstr("model.rope_scaling.beta_fast has no effect, because linear scaling does not use it; "
                        "remove it"));
  EXPECT_THAT(error("model.rope_scaling={factor=2, attention_factor=3}"),
              HasSubstr("attention_factor has no effect, because llama3 scaling does not use it"));
  EXPECT_THAT(error("model.rope_scaling={type='longrope', factor=2}"),
              HasSubstr("model.rope_scaling.factor has no effect, because longrope scaling does not use it"));
  EXPECT_THAT(error("model.rope_scaling={type='longrope', original_max_position=9, attention_factor=1.5, "
                    "short_factor=[1, 2], long_factor=[1, 2]}"),
              HasSubstr("model.rope_scaling.short_factor has 2 numbers but must have 16"));
  EXPECT_THAT(error("model.rope_scaling={type='yarn', factor=4, original_max_position=9, beta_slow=32}"),
              HasSubstr("needs 0 < beta_slow < beta_fast"));
}

TEST(LoadRecipe, AModelComesFromAHuggingFaceFolder) {
  FakeWorld world;
  const model::Architecture spec = *model::Preset("llama3.2-1b");
  world.files["/cwd/hf/config.json"] = model::ToHuggingFaceConfig(spec, DType::kBF16);
  const auto loaded = world.Load(kMinimal, {"model.from=hf", "model.layers=3"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  model::Architecture expected = spec;
  SetNumLayers(expected, 3);
  EXPECT_EQ(loaded->recipe.model.spec, expected);
  EXPECT_EQ(loaded->recipe.model.from, "/cwd/hf");
  EXPECT_EQ(loaded->recipe.model.preset, "");
  EXPECT_EQ(loaded->origin.at("model.hidden"), "--set (model.from)");
}

TEST(LoadRecipe, VariablesAreExpandedInPathsOnly) {
  FakeWorld world;
  world.variables["D"] = "/data";
  const auto loaded = world.Load(kMinimal, {"data.train[0].files=['${D}/*.txt']", "run.name=${D}x"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->recipe.data.train[0].files, ElementsAre("/data/0.txt", "/data/1.txt"));
  EXPECT_EQ(loaded->recipe.run.name, "${D}x");
}

TEST(LoadRecipe, AHoldoutAppliesToEveryTrainingSource) {
  const Recipe recipe = MustLoad(absl::StrCat(kMinimal, "[[data.eval]]\nholdout = 0.01\n")).recipe;
  ASSERT_EQ(recipe.data.eval.size(), 1u);
  EXPECT_EQ(recipe.data.eval[0].holdout, 0.01);
  EXPECT_EQ(recipe.data.train[0].holdout, 0.01);
  EXPECT_TRUE(recipe.data.eval[0].files.empty());
}

TEST(LoadRecipe, NotesNameWhatMakesNoDifference) {
  const LoadedRecipe loaded = MustLoad(kMinimal, {"optimizer.decay_fraction=0.5", "train.eval_batches=3"});
  EXPECT_THAT(
      loaded.notes,
      ElementsAre("--set: optimizer.decay_fraction has no effect: optimizer.lr_schedule is not \"wsd\"",
                  "--set: train.eval_batches has no effect: there is no [[data.eval]]"));
}

TEST(LoadRecipe, RandomWeightsOfAFolderAreANote) {
  FakeWorld world;
  world.files["/cwd/hf/config.json"] =
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 300, "initializer_range": 0.01})";
  const auto notes = [&](const std::vector<std::string>& sets) {
    const auto loaded = world.Load(kMinimal, sets);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->notes : std::vector<std::string>();
  };
  EXPECT_THAT(notes({"model.from=hf"}),
              ElementsAre(AllOf(HasSubstr("starts from random weights"), HasSubstr("/cwd/hf"),
                                HasSubstr("model.weights = \"from\""))));
  EXPECT_THAT(notes({"model.from=hf", "model.weights=random"}), IsEmpty()) << "that is what was asked for";
  world.files["/cwd/hf/tokenizer.model"] = "";
  EXPECT_THAT(notes({"model.from=hf", "model.weights=from"}), IsEmpty()) << "nobody stated an init_std";
  EXPECT_THAT(notes({"model.from=hf", "model.weights=from", "model.init_std=0.1"}),
              ElementsAre(HasSubstr("model.init_std has no effect")));
}

// The options are those that the error names.
TEST(LoadRecipe, AWarmupLongerThanTheRunNamesOptionsThatHelp) {
  const auto load = [](std::vector<std::string> sets) {
    sets.emplace_back("optimizer.warmup_steps=100");
    return FakeWorld().Load(kMinimal, sets);
  };
  EXPECT_THAT(std::string(load({}).status().message()),
              EndsWith("pass --set optimizer.warmup_steps=99 (or fewer) or --set train.steps=101 (or more)"));
  EXPECT_TRUE(load({"train.steps=101"}).ok());
  EXPECT_THAT(std::string(load({"train.steps=40"}).status().message()),
              EndsWith("pass --set optimizer.warmup_steps=39 (or fewer)"))
      << "40 steps were asked for";
  EXPECT_THAT(std::string(load({"train.steps=1"}).status().message()),
              EndsWith("pass --set optimizer.warmup_steps=0"));
  EXPECT_THAT(std::string(load({"optimizer.decay_steps=50"}).status().message()),
              EndsWith("pass --set optimizer.warmup_steps=49 (or fewer)"));
  const std::vector<std::string> wsd = {"optimizer.lr_schedule=wsd", "optimizer.decay_fraction=1"};
  EXPECT_THAT(std::string(load(wsd).status().message()), EndsWith("pass --set optimizer.warmup_steps=0"));
}

TEST(LoadRecipe, ADropoutOfAFolderIsANote) {
  FakeWorld world;
  world.files["/cwd/hf/config.json"] =
      R"({"model_type": "starcoder2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 300, "attention_dropout": 0.1, "embedding_dropout": 0.1,
          "residual_dropout": 0.0})";
  const std::vector<std::string> sets = {"model.from=hf", "model.weights=random"};
  for (const Purpose purpose : {Purpose::kTrain, Purpose::kPlan, Purpose::kWhatIf}) {
    const auto loaded = LoadRecipeText(kMinimal, "r.toml", sets, world.access(), purpose);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_THAT(loaded->notes,
                ElementsAre("/cwd/hf/config.json has attention_dropout = 0.1, embedding_dropout = 0.1, but "
                            "trainctl trains without dropout"));
  }
}

TEST(LoadRecipe, WhatIsNotHereSaysHowToFetchIt) {
  EXPECT_THAT(ErrorOf(kMinimal, {"data.train[0].files=['https://host/a.txt']"}),
              HasSubstr("https://host/a.txt is a URL, but only local files can be read; download it: curl "
                        "-LO https://host/a.txt"));
  EXPECT_THAT(ErrorOf(kMinimal, {"data.tokenizer='s3://bucket/t.json'"}),
              HasSubstr("aws s3 cp s3://bucket/t.json ."));
  EXPECT_THAT(ErrorOf(kMinimal, {"data.train[0].files=['file:///d/a.txt']"}),
              HasSubstr("use the path: /d/a.txt"));
  EXPECT_THAT(ErrorOf(kMinimal, {"model.preset=default", "model.from=missing/Model-1B"}),
              HasSubstr("hf download missing/Model-1B --local-dir missing/Model-1B"));
  EXPECT_EQ(ErrorOf(kMinimal, {"data.train[0].files=['x:y/*.txt']"}), "OK") << "a colon in a name";
}

TEST(LoadRecipe, PretrainedWeightsAreFedWithTheirOwnTokens) {
  FakeWorld world;
  world.files["/cwd/hf/config.json"] = model::ToHuggingFaceConfig(*model::Preset("toy-1m"), DType::kBF16);
  const std::vector<std::string> from = {"model.preset=default", "model.from=hf", "model.weights=from"};
  const auto load = [&](const char* more = "train.steps=100") {
    std::vector<std::string> sets = from;
    sets.emplace_back(more);
    const auto loaded = world.Load(kMinimal, sets);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *loaded;
  };
  // A byte model has no tokenizer in its folder.
  EXPECT_EQ(load().recipe.data.tokenizer, "byte");
  EXPECT_THAT(load().notes, ElementsAre(HasSubstr("its folder has no tokenizer.json or tokenizer.model")));
  EXPECT_THAT(load("data.train[0].files=['a.bin']").notes, IsEmpty()) << "ids are read as they are";

  world.files["/cwd/hf/tokenizer.json"] = "{}";
  EXPECT_EQ(load().recipe.data.tokenizer, "/cwd/hf/tokenizer.json");
  EXPECT_EQ(load().origin.at("data.tokenizer"), "--set (model.from)");
  EXPECT_THAT(load().notes, IsEmpty());
  EXPECT_EQ(load("data.tokenizer=byte").recipe.data.tokenizer, "byte");
  EXPECT_THAT(load("data.tokenizer=byte").notes,
              ElementsAre(HasSubstr("remove data.tokenizer to use the model's own tokenizer")));
  EXPECT_EQ(load("data.tokenizer=t.json").recipe.data.tokenizer, "/cwd/t.json");
  EXPECT_EQ(load("model.weights=random").recipe.data.tokenizer, "byte");
  EXPECT_THAT(ErrorOf(kMinimal, {"data.end_of_document='<eos>'"}),
              HasSubstr("the byte tokenizer always uses token 256"));
}

TEST(LoadRecipe, TheDefaultSequenceLengthIsOneThatTheModelSupports) {
  FakeWorld world;
  world.files["/cwd/hf/config.json"] =
      R"({"model_type": "mistral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 300, "sliding_window": 32, "max_position_embeddings": 96})";
  const std::string preset = absl::StrReplaceAll(kMinimal, {{"seq_len = 128\n", ""}});
  const std::string text = absl::StrReplaceAll(preset, {{"preset = \"toy-1m\"", "from = \"hf\""}});
  const absl::StatusOr<LoadedRecipe> loaded = world.Load(text);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.data.seq_len, 96);
  EXPECT_THAT(loaded->origin.at("data.seq_len"), HasSubstr("model.from"));
  EXPECT_EQ(MustLoad(preset).recipe.data.seq_len, 2048);
  std::vector<std::string> sets = {"data.seq_len=97"};
  EXPECT_THAT(std::string(world.Load(text, sets).status().message()),
              HasSubstr("data.seq_len (97) is above model.max_position (96)"));
}

TEST(LoadRecipe, AModelThatCannotBeTrainedSaysWhatCanBeDoneWithIt) {
  FakeWorld world;
  world.files["/cwd/hf/config.json"] =
      R"({"model_type": "mpt", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 300})";
  for (const char* model : {"model.from=hf", "model.preset=mixtral-8x7b"}) {
    std::vector<std::string> sets = {model};
    const absl::Status refused = world.Load(kMinimal, sets).status();
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("cannot train"), HasSubstr("trains model_type llama, mistral"),
                      HasSubstr("trainctl plan RECIPE --as megatron-core --set cluster.device=h100")));
    // And so it is.
    sets.insert(sets.end(), {"plan.framework=megatron-core", "cluster.device=h100"});
    const auto planned = LoadRecipeText(kMinimal, "r.toml", sets, world.access(), Purpose::kWhatIf);
    EXPECT_TRUE(planned.ok()) << planned.status();
  }
}

TEST(LoadRecipe, AGitLfsPointerIsBadDataAndNoMistakeOfTheRecipe) {
  FakeWorld world;
  world.files["/cwd/hf/config.json"] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  const std::string text = absl::StrReplaceAll(kMinimal, {{"preset = \"toy-1m\"", "from = \"hf\""}});
  const absl::Status status = world.Load(text).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
  EXPECT_EQ(
      status.message(),
      "r.toml:3:1: model.from: /cwd/hf/config.json is a Git LFS pointer, not the file itself; fetch the file "
      "with `git lfs pull` in its repository");
  EXPECT_EQ(ExitCodeFor(world.Load(text, {"train.steps=-1"}).status()), ExitCode::kUsage)
      << "there is something to mend in the recipe, too";
}

// A recipe that only the planner can read: no data, no length, an accelerator, a model of the planner's own.
constexpr char kForPlanning[] = R"(recipe_version = 1
[model]
preset = "mixtral-8x7b"
layers = 8
[train]
batch_sequences = 64
precision = "fp8"
[parallel]
tp = 4
schedule = "zbv"
stage_layers = [3, 5]
offload = ["optimizer"]
sequence_parallel = true
[cluster]
device = "h100"
nodes = 16
scale_out_bandwidth = "400Gb/s"
memory_bandwidth = "3.35TB/s"
[plan]
framework = "megatron-core"
objective = "cost"
)";

absl::StatusOr<LoadedRecipe> LoadForPlanning(const std::string& text,
                                             const std::vector<std::string>& sets = {}) {
  FakeWorld world;
  world.files["/cwd/m/config.json"] =
      R"({"model_type": "gemma", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 100})";
  world.files["/cwd/n/config.json"] = R"({"model_type": "mamba"})";
  world.files["/cwd/o/config.json"] =
      R"({"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 100, "num_local_experts": 4, "num_experts_per_tok": 2,
          "sliding_window": 8})";
  return LoadRecipeText(text, "r.toml", sets, world.access(), Purpose::kWhatIf);
}

TEST(LoadRecipe, AWhatIfTakesWhatOurTrainerDoesNotRun) {
  const absl::StatusOr<LoadedRecipe> loaded = LoadForPlanning(kForPlanning);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->purpose, Purpose::kWhatIf);
  model::Architecture mixtral = *model::Preset("mixtral-8x7b");
  SetNumLayers(mixtral, 8);
  EXPECT_EQ(loaded->recipe.model.spec, mixtral);
  EXPECT_EQ(loaded->stated.count("model.layers"), 1U);
  EXPECT_EQ(loaded->stated.count("model.hidden"), 0U);
  EXPECT_EQ(loaded->recipe.train.steps, 0);
  EXPECT_EQ(loaded->recipe.parallel.tp, 4);
  EXPECT_EQ(*loaded->recipe.parallel.stage_layers, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(loaded->recipe.cluster.scale_out_bandwidth, 50'000'000'000);
  EXPECT_EQ(loaded->recipe.cluster.memory_bandwidth, 3'350'000'000'000);

  const absl::StatusOr<LoadedRecipe> folder =
      LoadForPlanning(kForPlanning, {"model.preset=default", "model.from=m"});
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->recipe.model.spec.family, "gemma");
  EXPECT_EQ(folder->recipe.model.spec.hidden, 64);
  EXPECT_EQ(NumLayers(folder->recipe.model.spec), 8);
  const absl::StatusOr<LoadedRecipe> windows =
      LoadForPlanning(kForPlanning, {"model.preset=default", "model.from=o"});
  ASSERT_TRUE(windows.ok()) << windows.status();
  EXPECT_EQ(NumLayers(windows->recipe.model.spec), 8);
  EXPECT_EQ(WindowShare(windows->recipe.model.spec), 0.5) << "the two layers of the folder alternate";

  const absl::Status unknown =
      LoadForPlanning(kForPlanning, {"model.preset=default", "model.from=n"}).status();
  EXPECT_EQ(ExitCodeFor(unknown), ExitCode::kUsage);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("--set: model.from: /cwd/n/config.json: field 'model_type' is \"mamba\""));
}

// Sizes beside a model that only the planner knows follow the rules of every model.
TEST(LoadRecipe, HeadsFollowInEveryModel) {
  const auto spec_of = [](const std::vector<std::string>& sets) {
    const absl::StatusOr<LoadedRecipe> loaded = LoadForPlanning(kForPlanning, sets);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded->recipe.model.spec;
  };
  EXPECT_EQ(AttentionOf(spec_of({"model.hidden=2048"})).head_dim, 64);
  EXPECT_EQ(AttentionOf(spec_of({"model.heads=64"})).kv_heads, 8);
  EXPECT_EQ(AttentionOf(spec_of({"model.preset=qwen3-30b-a3b", "model.heads=64"})).head_dim,
            128);  // its own choice
  EXPECT_EQ(AttentionOf(spec_of({"model.preset=moonlight-16b", "model.heads=32"})).head_dim,
            128);  // the size for latent attention
  EXPECT_EQ(AttentionOf(spec_of({"model.preset=moonlight-16b", "model.heads=32"})).kv_heads, 32);
}

TEST(LoadRecipe, OurTrainerRefusesWhatIsForWhatIfs) {
  const std::string error = ErrorOf(kForPlanning);
  for (const char* word :
       {"this version cannot train the model: model.family = \"mixtral\"", "routed experts",
        "no training data", "parallel.schedule, parallel.stage_layers: there is no pipeline",
        "parallel.offload", "train.precision = \"fp8\"", "the run has no length",
        "plan.framework = \"megatron-core\": runs of other trainers can only be estimated"}) {
    EXPECT_THAT(error, HasSubstr(word));
  }
}

// Without another trainer's name the plan is for ours, on every device: what it cannot run is refused as a
// launch refuses it, in one list, and what only a run needs is told apart.
TEST(LoadRecipe, OnlyPathsAreRelativeToTheRecipe) {
  FakeWorld world;
  world.files["/cwd/base/a.toml"] =
      "[launch]\non_event = ['../notify', 'a/b']\n[metrics]\nprometheus = 'run.prom'\n";
  const std::string extends = absl::StrCat("extends = 'base/a.toml'\n", kMinimal);
  const Recipe recipe = world.Load(extends)->recipe;
  EXPECT_THAT(recipe.launch.on_event, ElementsAre("/cwd/notify", "a/b"));
  EXPECT_EQ(recipe.metrics.prometheus, "/cwd/base/run.prom");
  const Recipe others =
      world.Load(extends, {"launch.on_event=['notify']", "metrics.prometheus=localhost:0"})->recipe;
  EXPECT_THAT(others.launch.on_event, ElementsAre("notify")) << "is looked for in PATH";
  EXPECT_EQ(others.metrics.prometheus, "localhost:0");
}

TEST(LoadRecipe, APlanOfOursRefusesWhatALaunchRefuses) {
  for (const char* device : {"cpu", "cuda", "h100"}) {
    const std::vector<std::string> sets = {"plan.framework=default", absl::StrCat("cluster.device=", device),
                                           "model.preset=toy-1m", "train.batch_sequences=101"};
    const absl::StatusOr<LoadedRecipe> plan = LoadForPlanning(kForPlanning, sets);
    ASSERT_FALSE(plan.ok());
    const std::string error(plan.status().message());
    EXPECT_THAT(error, HasSubstr("parallel.schedule, parallel.stage_layers: there is no pipeline"));
    EXPECT_THAT(error, HasSubstr("train.batch_sequences (101) is not a multiple of the"));
    EXPECT_THAT(error, Not(HasSubstr("no training data")));
    EXPECT_THAT(error, Not(HasSubstr("has no length")));
    FakeWorld world;
    const absl::StatusOr<LoadedRecipe> run = LoadRecipeText(kForPlanning, "r.toml", sets, world.access());
    for (const absl::string_view line : absl::StrSplit(error, '\n')) {
      if (!absl::StartsWith(line, "  ")) continue;
      EXPECT_THAT(std::string(run.status().message()), HasSubstr(std::string(line)));
    }
  }
}

TEST(LoadRecipe, APlanOfOursNeedsNoDataAndSaysWhatARunLacks) {
  const std::string text = "[model]\npreset = \"toy-1m\"\n[cluster]\ndevice = \"h100\"\nnodes = 2\n";
  const absl::StatusOr<LoadedRecipe> loaded = LoadForPlanning(text, {"train.batch_sequences=64"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->purpose, Purpose::kPlan);
  EXPECT_EQ(loaded->recipe.cluster.devices_per_node, 8) << "as many as the node of the catalogue has";
  EXPECT_THAT(loaded->missing, ::testing::UnorderedElementsAre(
                                   HasSubstr("no training data"), HasSubstr("the run has no length"),
                                   HasSubstr("cluster.nodes = 2, but launch.backend")));
  for (const std::string& lacks : loaded->missing) EXPECT_THAT(ErrorOf(text), HasSubstr(lacks));
  const absl::StatusOr<LoadedRecipe> whole = LoadForPlanning(kMinimal);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(whole->missing.empty());
}

TEST(LoadRecipe, DevicesAreCheckedWhereTheyStand) {
  const std::string text = "[model]\npreset = \"toy-1m\"\n[cluster]\ndevice = \"h1000\"\n";
  EXPECT_THAT(ErrorOf(text), HasSubstr("r.toml:4:1: cluster.device: "));
  EXPECT_THAT(ErrorOf(text, {"cluster.device=mi300x"}), HasSubstr("trains only on NVIDIA GPUs and CPUs"));
  EXPECT_THAT(ErrorOf(text, {"cluster.device=h100", "cluster.node=dgx-a100"}),
              HasSubstr("cluster.node: dgx-a100 contains"));
  EXPECT_THAT(ErrorOf(text, {"cluster.device=h100", "cluster.node=dgx-z100"}), HasSubstr("cluster.node: "));
  const auto what_if = [&](const char* device) {
    return std::string(
        LoadForPlanning(kForPlanning, {absl::StrCat("cluster.device=", device)}).status().message());
  };
  EXPECT_THAT(what_if("cpu"), HasSubstr("requires cluster.device to name an accelerator"));
  EXPECT_EQ(what_if("mi300x"), "");
}

TEST(LoadRecipe, AutoIsTheDeviceOfThisMachine) {
  FakeWorld world;
  Access access = world.access();
  const auto load = [&](const std::string& text, const std::vector<std::string>& sets,
                        Purpose purpose = Purpose::kWhatIf) {
    return LoadRecipeText(text, "r.toml", sets, access, purpose);
  };
  const std::string gpu = "[cluster]\ndevice = \"auto\"\n";
  // Nobody to ask: a CPU, whose plan is for the trainer.
  absl::StatusOr<LoadedRecipe> loaded = load(kMinimal + gpu, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.cluster.device, "cpu");
  EXPECT_EQ(loaded->purpose, Purpose::kPlan);

  access.find_device = [] { return FoundDevice{"a100-sxm-40gb", 4, int64_t{39} << 30, "four of them"}; };
  loaded = load(kMinimal + gpu, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->purpose, Purpose::kPlan);
  EXPECT_EQ(loaded->recipe.cluster.device, "a100-sxm-40gb");
  EXPECT_EQ(loaded->recipe.cluster.devices_per_node, 4);
  EXPECT_EQ(loaded->recipe.cluster.memory_bytes, int64_t{39} << 30);
  EXPECT_EQ(loaded->notes.at(0), "cluster.device = auto: four of them");
  EXPECT_EQ(loaded->origin.at("cluster.device"), "r.toml:12:1");
  EXPECT_EQ(loaded->origin.at("cluster.devices_per_node"), "cluster.device = \"auto\"");
  EXPECT_EQ(loaded->stated.count("cluster.devices_per_node"), 1U);
  // What is stated stays, wherever it is.
  loaded = load("[cluster]\ndevices_per_node = 2\n", {"cluster.device=auto", "model.preset=toy-1m"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.cluster.devices_per_node, 2);
  EXPECT_EQ(loaded->recipe.cluster.device, "a100-sxm-40gb");
  // More workers than devices are the user's business, unless the environment hides the others.
  EXPECT_TRUE(load(kMinimal + gpu, {"cluster.devices_per_node=8", "train.batch_sequences=8"}).ok());
  access.find_device = [] {
    return FoundDevice{"a100-sxm-40gb", 4, 0, "four of them", "CUDA_VISIBLE_DEVICES shows 4 of 8"};
  };
  const std::vector<std::string> eight = {"cluster.devices_per_node=8", "train.batch_sequences=8"};
  EXPECT_THAT(
      load(kMinimal + gpu, eight).status().message(),
      HasSubstr("--set: cluster.devices_per_node = 8: CUDA_VISIBLE_DEVICES shows 4 of 8. Each worker"));
  EXPECT_TRUE(load(kMinimal + gpu, {"cluster.devices_per_node=4"}).ok());
  access.find_device = [] {
    return FoundDevice{"cpu", 0, 0, "none", "CUDA_VISIBLE_DEVICES shows none of 8"};
  };
  EXPECT_TRUE(load(kMinimal + gpu, eight).ok()) << "workers on CPUs";
  access.find_device = [] { return FoundDevice{"a100-sxm-40gb", 4, int64_t{39} << 30, "four of them"}; };
  // A later layer that names one does not ask.
  loaded = load(kMinimal + gpu, {"cluster.device=cpu"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.cluster.devices_per_node, 1);
  EXPECT_TRUE(loaded->notes.empty());
  // A run trains on it.
  loaded = load(kMinimal + gpu, {}, Purpose::kTrain);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->recipe.cluster.device, "a100-sxm-40gb");

  access.find_device = []() -> absl::StatusOr<FoundDevice> { return UsageError("an unknown one"); };
  EXPECT_THAT(std::string(load(kMinimal + gpu, {}).status().message()),
              HasSubstr("r.toml:12:1: cluster.device = \"auto\": an unknown one"));
}

TEST(LoadRecipe, WhatAWhatIfReadsIsStillCheckedForItself) {
  const auto error = [](const char* set) {
    const absl::StatusOr<LoadedRecipe> loaded = LoadForPlanning(kForPlanning, {set});
    return loaded.ok() ? std::string("OK") : std::string(loaded.status().message());
  };
  EXPECT_THAT(error("model.layers=0"), HasSubstr("model.layers: 0 is out of range"));
  EXPECT_THAT(error("cluster.nodes=0"), HasSubstr("cluster.nodes: 0 is out of range"));
  EXPECT_THAT(error("cluster.nodes=1000000000"), HasSubstr("is out of range"));
  EXPECT_THAT(error("plan.price_per_gpu_hour=-2"), HasSubstr("plan.price_per_gpu_hour: -2 is out of range"));
  EXPECT_THAT(error("plan.objective=fun"), HasSubstr("\"headroom\" or \"fewest_gpus\""));
  EXPECT_THAT(error("cluster.memory_bandwidth=3TB"), HasSubstr("is not a bandwidth"));
  EXPECT_THAT(error("cluster.memory_bandwidth=/s"), HasSubstr("is not a bandwidth"));
  EXPECT_THAT(error("parallel.offload=['weights']"), HasSubstr("parallel.offload: expected"));
  EXPECT_THAT(error("model.preset=llama3.1-8b"), HasSubstr("OK"));
  EXPECT_EQ(
      error("optimizer.name=lion"),
      "--set: optimizer.name = \"lion\": estimates of other trainers (plan.framework) support only adamw");
  EXPECT_EQ(error("optimizer.momentum=0.9"),
            "--set: optimizer.momentum: adamw (optimizer.name) does not use it, but sgd does; remove it");
  EXPECT_EQ(error("model={preset='llama3.1-8b', heads=7}"),
            "--set: model.hidden (4096) is not a multiple of model.heads (7); change one of them or set "
            "model.head_dim");
}

}  // namespace
}  // namespace trainctl::recipe
