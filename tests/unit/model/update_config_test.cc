#include "model/update_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/json.h"
#include "model/config_json.h"

namespace trainctl::model {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// As transformers 5 writes it, and with fields and spellings that only this file has.
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
