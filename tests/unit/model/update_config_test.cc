#include "model/update_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/json.h"
#include "model/config_json.h"
#include "model/families.h"

namespace trainctl::model {
namespace {

using ::testing::HasSubstr;

// The form that transformers 5 writes, with additional fields and unusual spellings.
constexpr char kConfig[] = R"({
    "vocab_size": 320,
    "architectures": ["LlamaForCausalLM"],
    "use_cache": true,
    "bos_token_id": 5,
    "eos_token_id": 0,
    "dtype": "bfloat16",
    "hidden_size": 64,
    "intermediate_size": 96.0,
    "layer_types": [
        "full_attention",
        "full_attention"
    ],
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    "unsloth_version": "\u00e9",
    "transformers_version": "5.0.0"
}
)";

Architecture SpecOf(const char* text = kConfig) { return *FromHuggingFaceConfig(text, "config.json"); }

std::string Replaced(std::initializer_list<std::pair<const char*, const char*>> parts) {
  std::string text = kConfig;
  for (const auto& [from, to] : parts) {
    EXPECT_THAT(text, HasSubstr(from));
    text = absl::StrReplaceAll(text, {{from, to}});
  }
  return text;
}

const SpecialTokens kTokens = {.bos = {5}, .eos = {0}};

TEST(UpdateConfig, AModelThatIsTheSameKeepsEveryByte) {
  EXPECT_EQ(UpdateConfig(kConfig, SpecOf(), DType::kBF16, kTokens), kConfig);
}

TEST(UpdateConfig, OnlyTokensAndTypeChange) {
  const SpecialTokens tokens = {.bos = {5}, .eos = {7, 0}};
  EXPECT_EQ(UpdateConfig(kConfig, SpecOf(), DType::kF32, tokens),
            Replaced({{"\"eos_token_id\": 0", "\"eos_token_id\": [\n        7,\n        0\n    ]"},
                      {"bfloat16", "float32"}}));
}

// Whichever of its names the file uses.
TEST(UpdateConfig, TheTypeIsWrittenUnderTheNamesOfTheFile) {
  const std::string old_name = Replaced({{"\"dtype\"", "\"torch_dtype\""}});
  EXPECT_EQ(UpdateConfig(old_name, SpecOf(), DType::kF32, kTokens),
            absl::StrReplaceAll(old_name, {{"bfloat16", "float32"}}));
  const std::string both = Replaced({{"\"dtype\"", "\"dtype\": \"float16\", \"torch_dtype\""}});
  EXPECT_EQ(UpdateConfig(both, SpecOf(), DType::kF32, kTokens),
            absl::StrReplaceAll(both, {{"bfloat16", "float32"}, {"float16", "float32"}}));
  const std::string none = Replaced({{"    \"dtype\": \"bfloat16\",\n", ""}});
  EXPECT_EQ(UpdateConfig(none, SpecOf(), DType::kF32, kTokens),
            absl::StrReplaceAll(none, {{"\"5.0.0\"", "\"5.0.0\",\n    \"torch_dtype\": \"float32\""}}));
}

TEST(UpdateConfig, AModelSavedWithoutItsHeadNamesTheWholeClass) {
  const std::string text = Replaced({{"LlamaForCausalLM", "LlamaModel"}});
  const Json config = Json::parse(*UpdateConfig(text, SpecOf(), DType::kBF16, kTokens));
  EXPECT_EQ(config["architectures"], Json::array({"LlamaForCausalLM"}));
}

TEST(UpdateConfig, ALengthAndTheTypesOfItsLayersAgree) {
  Architecture spec = SpecOf();
  SetNumLayers(spec, 1);
  EXPECT_EQ(UpdateConfig(kConfig, spec, DType::kBF16, kTokens),
            Replaced({{"\"full_attention\",\n        ", ""}, {"hidden_layers\": 2", "hidden_layers\": 1"}}));
  SetNumLayers(spec, 3);
  const Json config = Json::parse(*UpdateConfig(kConfig, spec, DType::kBF16, kTokens));
  EXPECT_EQ(config["layer_types"], Json::array({"full_attention", "full_attention", "full_attention"}));
  EXPECT_EQ(config["num_hidden_layers"], 3);
}

TEST(UpdateConfig, RopeKeepsItsForm) {
  Architecture spec = SpecOf();
  spec.rope.theta = 5e5;
  spec.rope.scaling = RopeScaling{};
  const auto updated = [&](const std::string& text) {
    const std::string config = UpdateConfig(text, spec, DType::kBF16, kTokens).value_or("{}");
    const absl::StatusOr<Architecture> read = FromHuggingFaceConfig(config, "config.json");
    EXPECT_TRUE(read.ok() && *read == spec) << config;
    EXPECT_THAT(config, HasSubstr("\"use_cache\": true"));
    return Json::parse(config);
  };
  const Json tables = updated(kConfig);
  EXPECT_EQ(tables["rope_parameters"]["rope_theta"], 5e5);
  EXPECT_EQ(tables["rope_parameters"]["rope_type"], "llama3");
  EXPECT_FALSE(tables.contains("rope_theta") || tables.contains("rope_scaling"));
  constexpr char kTable[] = R"("rope_parameters": {"rope_type": "default", "rope_theta": 1e4})";
  for (const char* old_form : {R"("rope_theta": 1e4, "rope_scaling": null)", R"("rope_theta": 1e4)"}) {
    const Json fields = updated(Replaced({{kTable, old_form}}));
    EXPECT_EQ(fields["rope_theta"], 5e5);
    EXPECT_EQ(fields["rope_scaling"]["factor"], 8);
    EXPECT_FALSE(fields.contains("rope_parameters"));
  }
  spec.rope.scaling.reset();
  EXPECT_EQ(updated(kConfig)["rope_parameters"], (Json{{"rope_type", "default"}, {"rope_theta", 5e5}}));
}

// A change of theta leaves the fields of the scaling as they are.
TEST(UpdateConfig, ScalingKeepsItsForm) {
  constexpr char kTable[] = R"("rope_parameters": {"rope_type": "default", "rope_theta": 1e4})";
  const std::string text = Replaced(
      {{kTable, R"("rope_parameters": {"rope_type": "yarn", "factor": 4, "mscale": 1.0, "mscale_all_dim": 0.5,
                   "original_max_position_embeddings": 16, "rope_theta": 1e4})"}});
  Architecture spec = SpecOf(text.c_str());
  spec.rope.theta = 5e5;
  const auto updated = [&] {
    const std::string config = UpdateConfig(text, spec, DType::kBF16, kTokens).value_or("{}");
    EXPECT_EQ(*FromHuggingFaceConfig(config, "config.json"), spec) << config;
    return Json::parse(config);
  };
  EXPECT_EQ(updated()["rope_parameters"],
            Json::parse(R"({"rope_type": "yarn", "factor": 4, "mscale": 1.0, "mscale_all_dim": 0.5,
                            "original_max_position_embeddings": 16, "rope_theta": 500000.0})"));
  spec.rope.scaling = RopeScaling{.original_max_position = 16,
                                  .kind = RopeScalingKind::kLongRope,
                                  .attention_factor = 1.25,
                                  .short_factor = std::vector<double>(8, 1.5),
                                  .long_factor = std::vector<double>(8, 2.5)};
  const Json config = updated();
  EXPECT_EQ(config["rope_parameters"]["type"], "longrope");
  EXPECT_EQ(config["original_max_position_embeddings"], 16);
}

// GPT-2 uses other names for its sizes.
TEST(UpdateConfig, ASizeIsWrittenUnderTheNameOfTheFile) {
  constexpr char kGpt2[] =
      R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "n_ctx": 32, "n_embd": 64,
          "n_head": 4, "n_inner": null, "n_layer": 2, "n_positions": 32, "vocab_size": 100, "dtype": "bfloat16"})";
  Architecture spec = SpecOf(kGpt2);
  EXPECT_EQ(UpdateConfig(kGpt2, spec, DType::kBF16, {}), kGpt2);
  SetNumLayers(spec, 3);
  EXPECT_EQ(UpdateConfig(kGpt2, spec, DType::kBF16, {}),
            absl::StrReplaceAll(kGpt2, {{"\"n_layer\": 2", "\"n_layer\": 3"}}));
  SetEach(spec, &Mlp::ffn, 80);
  EXPECT_EQ(UpdateConfig(kGpt2, spec, DType::kBF16, {}),
            absl::StrReplaceAll(kGpt2, {{"\"n_layer\": 2", "\"n_layer\": 3"}, {"null", "80"}}));
}

// Gemma 3 has a table for each type of layer.
TEST(UpdateConfig, TablesOfTypesOfLayersStayApart) {
  constexpr char kGemma3[] =
      R"({"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 64,
          "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 16, "vocab_size": 100, "sliding_window": 32, "use_cache": true, "dtype": "bfloat16",
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
          "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})";
  Architecture spec = SpecOf(kGemma3);
  EXPECT_EQ(UpdateConfig(kGemma3, spec, DType::kBF16, {}), kGemma3);
  spec.rope.theta = 5e5;
  SetNumLayers(spec, 2);
  const std::string text = UpdateConfig(kGemma3, spec, DType::kBF16, {}).value_or("{}");
  const absl::StatusOr<Architecture> read = FromHuggingFaceConfig(text, "config.json");
  ASSERT_TRUE(read.ok()) << text;
  EXPECT_EQ(*read, spec) << text;
  const Json config = Json::parse(text);
  EXPECT_EQ(config["layer_types"], Json::array({"sliding_attention", "full_attention"}));
  EXPECT_EQ(config["rope_parameters"],
            Json::parse(R"({"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})"));
  EXPECT_FALSE(config.contains("rope_theta") || config.contains("rope_local_base_freq"));
}

TEST(UpdateConfig, EveryFamilyIsUpdatedInPlace) {
  for (const std::string& name : NamedFamilies()) {
    const Family& family = *FindFamily(name);
    Architecture spec = BaseOfFamily(name);
    SetNumLayers(spec, 6);
    spec.hidden = 64;
    spec.vocab = 100;
    SetEach(spec, &Attention::heads, 4);
    SetEach(spec, &Attention::kv_heads, family.has_kv_heads ? 2 : 4);
    SetEach(spec, &Attention::head_dim, 16);
    SetEach(spec, &Mlp::ffn, 96);
    if (family.bias == Bias::kAll) SetAllLinearBiases(spec, true);
    ASSERT_TRUE(CheckTrainable(spec).ok()) << name << ": " << CheckTrainable(spec);
    const std::string text = absl::StrReplaceAll(ToHuggingFaceConfig(spec, DType::kBF16),
                                                 {{"{\n", "{\n  \"use_cache\": false,\n"}});
    EXPECT_EQ(UpdateConfig(text, spec, DType::kBF16, {}), text);
    SetNumLayers(spec, 3);
    SetEach(spec, &Mlp::ffn, 80);
    if (StatesRope(family)) spec.rope.theta = 12345.5;
    if (family.window_rope_theta_key == nullptr) spec.window_rope_theta = spec.rope.theta;
    const std::optional<std::string> updated = UpdateConfig(text, spec, DType::kBF16, {});
    ASSERT_TRUE(updated.has_value()) << name << ": " << text;
    // The spec may have a kind that none of its layers is of any more.
    EXPECT_EQ(ToHuggingFaceConfig(*FromHuggingFaceConfig(*updated, "config.json"), DType::kBF16),
              ToHuggingFaceConfig(spec, DType::kBF16));
    EXPECT_THAT(*updated, HasSubstr("\"use_cache\": false"));
  }
}

// The file has neither head_dim nor num_key_value_heads, and other sizes would follow from the new ones.
TEST(UpdateConfig, SizesThatTheFileDoesNotStateAreAdded) {
  Architecture spec = SpecOf();
  spec.hidden = 128;
  SetEach(spec, &Attention::heads, 8);
  SetEach(spec, &Attention::kv_heads, 4);
  SetEach(spec, &Attention::head_dim, 32);
  const std::optional<std::string> updated = UpdateConfig(kConfig, spec, DType::kBF16, kTokens);
  ASSERT_TRUE(updated.has_value());
  EXPECT_EQ(*FromHuggingFaceConfig(*updated, "config.json"), spec);
  EXPECT_THAT(*updated, HasSubstr("\"intermediate_size\": 96.0"));
  EXPECT_THAT(*updated, HasSubstr("\"num_key_value_heads\": 4"));
}

TEST(UpdateConfig, AFileOfAnotherModelIsNotUpdated) {
  Architecture qwen2 = SpecOf();
  SetEach(qwen2, &Attention::qkv_bias, true);
  EXPECT_EQ(UpdateConfig(kConfig, qwen2, DType::kBF16, kTokens), std::nullopt);
  for (const char* text : {"", "[]", R"({"eos_token_id": 7})", R"({"model_type": "gpt2"})"}) {
    EXPECT_EQ(UpdateConfig(text, SpecOf(), DType::kBF16, kTokens), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace trainctl::model
