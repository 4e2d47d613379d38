#include "recipe/finetune_starter.h"

#include "recipe_test_util.h"

namespace trainctl::recipe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kConfig[] =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
  "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "vocab_size": 256, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "hidden_act": "silu", "torch_dtype": "float32"})";

constexpr int64_t kEpochTokens = int64_t{16} * 2048 * 100;

FineTune Choices() {
  return {.model = "model",
          .num_parameters = 1'240'000'000,
          .max_position = 4096,
          .files = {"a.jsonl"},
          .prompt_field = "question",
          .text_field = "answer",
          .epoch_tokens = kEpochTokens};
}

std::string TextOf(const FineTune& choices) { return StarterText(FineTuneStarter(choices), "r.toml"); }

LoadedRecipe Load(const FineTune& choices) {
  FakeWorld world;
  world.files["/cwd/model/config.json"] = kConfig;
  Access access = world.access();
  access.count_epoch_tokens = [](const Recipe&) { return kEpochTokens; };
  absl::StatusOr<LoadedRecipe> loaded = LoadRecipeText(TextOf(choices), "r.toml", {}, access);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

TEST(FineTuneStarter, LoadsWithItsData) {
  const Recipe recipe = Load(Choices()).recipe;
  EXPECT_EQ(recipe.model.weights, "from");
  EXPECT_EQ(recipe.data.seq_len, 2048);
  EXPECT_EQ(recipe.data.train[0].prompt_field, "question");
  EXPECT_EQ(recipe.data.train[0].text_field, "answer");
  EXPECT_EQ(recipe.train.steps, 300);
  EXPECT_EQ(recipe.train.batch_sequences, 16);
  EXPECT_EQ(recipe.optimizer.warmup_steps, 9);
  EXPECT_EQ(recipe.checkpoint.keep_best, "held-out");
  EXPECT_EQ(recipe.train.eval_every, 60);
  EXPECT_EQ(recipe.checkpoint.every_steps, recipe.train.eval_every);
}

TEST(FineTuneStarter, LittleDataHasSmallBatchesAndRoomForTheWarmUp) {
  for (const int64_t epoch_tokens : {1, 2048, 10'000, 100'000, 10'000'000}) {
    FineTune choices = Choices();
    choices.epoch_tokens = epoch_tokens;
    int64_t batch = 0, warmup = 0, every = 0;
    const Starter starter = FineTuneStarter(choices);
    for (const StarterLine& line : starter.lines) {
      if (line.key == "train.batch_sequences") batch = std::stoll(line.value);
      if (line.key == "optimizer.warmup_steps") warmup = std::stoll(line.value);
      if (line.key == "train.eval_every") every = std::stoll(line.value);
    }
    ASSERT_GE(batch, 1);
    const int64_t steps = (3 * epoch_tokens + batch * 2048 - 1) / (batch * 2048);
    EXPECT_TRUE(steps >= 100 || batch == 1) << steps << " steps of " << batch;
    EXPECT_LT(warmup, steps);
    EXPECT_GE(every, 1);
  }
}

TEST(FineTuneStarter, HasPlaceholdersForUnknownData) {
  FineTune choices = Choices();
  choices.files.clear();
  choices.prompt_field = choices.text_field = "";
  choices.epoch_tokens = 0;
  const Recipe recipe = Load(choices).recipe;
  EXPECT_THAT(recipe.data.train[0].files, ElementsAre("/cwd/data/train.jsonl"));
  EXPECT_EQ(recipe.train.steps, 500);
  EXPECT_THAT(TextOf(choices),
              AllOf(HasSubstr("Replace this with your files."), HasSubstr("prompt_field = \"prompt\"\n")));
  choices.files = {"a.jsonl"};
  choices.field_names = {"in\n", "label"};
  EXPECT_THAT(TextOf(choices), HasSubstr(R"(The first example has "in\u000A",)"));
}

TEST(FineTuneStarter, TextWithoutPromptsNeedsNoPromptField) {
  FineTune choices = Choices();
  choices.prompt_field = "";
  choices.text_field = "text";
  EXPECT_THAT(TextOf(choices), HasSubstr("\n#prompt_field = \"prompt\"\n"));
  EXPECT_EQ(Load(choices).recipe.data.train[0].prompt_field, "");
  choices.has_fields = false;
  choices.text_field = "";
  EXPECT_THAT(TextOf(choices), Not(HasSubstr("prompt_field = ")));
  Load(choices);
}

TEST(FineTuneStarter, SeveralFilesAreOneSource) {
  FineTune choices = Choices();
  choices.files = {"b \"quoted\".jsonl", "a.jsonl"};
  EXPECT_THAT(Load(choices).recipe.data.train[0].files,
              ElementsAre("/cwd/a.jsonl", "/cwd/b \"quoted\".jsonl"));
}

TEST(FineTuneStarter, AShortModelLimitsTheSequences) {
  FineTune choices = Choices();
  choices.max_position = 1024;
  EXPECT_EQ(Load(choices).recipe.data.seq_len, 1024);
  EXPECT_THAT(TextOf(choices), HasSubstr("the longest sequence of the model"));
}

TEST(FineTuneStarter, TheBatchIsAMultipleOfTheWorkers) {
  FineTune choices = Choices();
  choices.num_workers = 6;
  EXPECT_THAT(TextOf(choices), HasSubstr("batch_sequences = 18\n"));
}

TEST(FineTuneStarter, SmallerModelsLearnFaster) {
  EXPECT_EQ(FineTuneLearningRate(70'000'000'000), 2e-5);
  EXPECT_EQ(FineTuneLearningRate(1'000'000'000), 2e-5);
  EXPECT_EQ(FineTuneLearningRate(596'049'920), 2.5e-5);  // Qwen 3 0.6B
  EXPECT_EQ(FineTuneLearningRate(350'000'000), 3e-5);
  EXPECT_EQ(FineTuneLearningRate(124'439'808), 6e-5);  // GPT-2
}

}  // namespace
}  // namespace trainctl::recipe
