#include "recipe/starter.h"

#include "recipe/schema.h"
#include "recipe_test_util.h"

namespace trainctl::recipe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The values of model/config.json for the one that starts from a folder.
constexpr char kConfig[] =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
  "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "vocab_size": 256, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "hidden_act": "silu", "torch_dtype": "float32"})";

FakeWorld World() {
  FakeWorld world;
  world.files["/cwd/model/config.json"] = kConfig;
  return world;
}

bool IsPlan(const Starter& starter) { return absl::StartsWith(starter.name, "h100"); }

TEST(Starter, EveryOneLoads) {
  const FakeWorld world = World();
  ASSERT_FALSE(Starters().empty());
  for (const Starter& starter : Starters()) {
    const absl::StatusOr<LoadedRecipe> loaded =
        LoadRecipeText(StarterText(starter, "r.toml"), "r.toml", {}, world.access(),
                       IsPlan(starter) ? Purpose::kWhatIf : Purpose::kTrain);
    ASSERT_TRUE(loaded.ok()) << starter.name << ": " << loaded.status();
    for (const StarterLine& line : starter.lines) {
      EXPECT_EQ(loaded->stated.count(line.key), line.is_comment ? 0u : 1u) << starter.name << " " << line.key;
    }
  }
}

// A choice that is shown must be one: with its # taken away the recipe still loads.
TEST(Starter, EveryChoiceMayBeTaken) {
  const FakeWorld world = World();
  for (const Starter& starter : Starters()) {
    for (const StarterLine& line : starter.lines) {
      if (!line.is_comment) continue;
      const std::string text = StarterText(starter, "r.toml");
      const std::string leaf = std::string(line.key).substr(std::string(line.key).rfind('.') + 1);
      const size_t at = text.find(absl::StrCat("\n#", leaf, " = "));
      ASSERT_NE(at, std::string::npos) << leaf;
      std::string taken = text;
      taken.erase(at + 1, 1);
      const absl::StatusOr<LoadedRecipe> loaded = LoadRecipeText(
          taken, "r.toml", {}, world.access(), IsPlan(starter) ? Purpose::kWhatIf : Purpose::kTrain);
      EXPECT_TRUE(loaded.ok()) << starter.name << " " << line.key << ": " << loaded.status();
    }
  }
}

TEST(Starter, CommentsAreTheSchemasAndFitALine) {
  for (const Starter& starter : Starters()) {
    const std::string text = StarterText(starter, "mine.toml");
    EXPECT_THAT(text, HasSubstr("# mine.toml: "));
    EXPECT_THAT(text, HasSubstr("trainctl plan mine.toml"));
    EXPECT_THAT(text, HasSubstr("<name>-<UTC yyyymmdd-hhmmss>`.\nname = "));
    EXPECT_THAT(text, Not(HasSubstr("{recipe}")));
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      EXPECT_LE(end - begin, 110u) << text.substr(begin, end - begin);
    }
  }
}

TEST(Starter, AnUnknownNameIsAnsweredWithTheNames) {
  const std::string error(FindStarter("txt").status().message());
  EXPECT_THAT(error, HasSubstr("did you mean text?"));
  EXPECT_THAT(error, HasSubstr("h100-moe"));
  EXPECT_EQ(FindStarter(std::string(1 << 20, 'x')).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainctl::recipe
