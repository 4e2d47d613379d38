#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "base/json.h"
#include "base/status.h"
#include "model/architecture.h"
#include "model/config_json.h"
#include "model/families.h"
#include "model/presets.h"

namespace trainctl::model {
namespace {

using ::testing::HasSubstr;

// As published with Llama-3.2-1B-Instruct.
constexpr char kLlama32[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})";

// The least that a configuration can say; everything else is the default of transformers.
constexpr char kMinimal[] = R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100})";

std::string With(const char* extra) {
  return absl::StrReplaceAll(kMinimal, {{"\"vocab_size\"", absl::StrCat(extra, ", \"vocab_size\"")}});
}

TEST(HuggingFaceConfig, APublishedConfigurationIsThePreset) {
  const absl::StatusOr<Architecture> spec = FromHuggingFaceConfig(kLlama32, "config.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(*spec, *Preset("llama3.2-1b"));
}

TEST(HuggingFaceConfig, AbsentFieldsHaveTheDefaultsOfTransformers) {
  const absl::StatusOr<Architecture> spec = FromHuggingFaceConfig(kMinimal, "config.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  Architecture expected;
  SetNumLayers(expected, 2);
  expected.hidden = 64;
  SetEach(expected, &Attention::heads, 4);
  SetEach(expected, &Attention::kv_heads, 4);
  SetEach(expected, &Attention::head_dim, 16);
  SetEach(expected, &Mlp::ffn, 96);
  expected.vocab = 100;
  expected.max_position = 2048;
  expected.norm.eps = 1e-6;
  EXPECT_EQ(*spec, expected);
}

TEST(HuggingFaceConfig, EveryPresetSurvivesTheRoundTrip) {
  for (const std::string& name : PresetNames()) {
    const Architecture spec = *Preset(name);
    const absl::StatusOr<Architecture> back =
        FromHuggingFaceConfig(ToHuggingFaceConfig(spec, DType::kBF16), "config.json");
    ASSERT_TRUE(back.ok()) << name << ": " << back.status();
    EXPECT_EQ(*back, spec) << name;
  }
}

// Tests every family, with all of its biases and with none.
TEST(HuggingFaceConfig, EveryFamilySurvivesTheRoundTrip) {
  for (const std::string& name : NamedFamilies()) {
    const Family& family = *FindFamily(name);
    for (const bool has_biases : {false, true}) {
      Architecture spec = BaseOfFamily(name);
      SetNumLayers(spec, 12);  // whole periods of all families
      spec.hidden = 64;
      spec.vocab = 100;
      SetEach(spec, &Attention::heads, 4);
      SetEach(spec, &Attention::kv_heads, family.has_kv_heads ? 2 : 4);
      SetEach(spec, &Attention::head_dim, family.has_head_dim ? 24 : 16);
      SetEach(spec, &Mlp::ffn, 96);
      if (family.bias != Bias::kAll && family.bias != Bias::kMlp) {
        SetEach(spec, &Attention::qkv_bias, has_biases && family.bias != Bias::kNone);
        SetEach(spec, &Attention::out_bias,
                has_biases && family.bias != Bias::kNone && family.bias != Bias::kQkv);
        SetEach(spec, &Mlp::bias,
                has_biases && (family.bias == Bias::kByFile || family.bias == Bias::kUseBias));
      }
      if (family.windows == Windows::kAll) SetWindow(spec, has_biases ? 32 : 0);
      if (family.windows == Windows::kUpper || family.windows == Windows::kListed)
        SetWindows(spec, has_biases ? 32 : 0, std::vector<bool>(12, has_biases));
      ASSERT_TRUE(CheckTrainable(spec).ok()) << name << ": " << CheckTrainable(spec);
      const std::string text = ToHuggingFaceConfig(spec, DType::kBF16);
      const absl::StatusOr<Architecture> back = FromHuggingFaceConfig(text, "config.json");
      ASSERT_TRUE(back.ok()) << name << ": " << back.status();
      EXPECT_EQ(*back, spec) << text;
    }
  }
}

// A scaling that a config.json of the family cannot state would be lost.
TEST(HuggingFaceConfig, EveryScalingOfAFamilySurvivesTheRoundTripOrIsRefused) {
  int accepted = 0;
  for (const std::string& name : NamedFamilies()) {
    Architecture spec = BaseOfFamily(name);
    SetNumLayers(spec, 12);
    spec.hidden = 64;
    spec.vocab = 100;
    SetEach(spec, &Attention::heads, 4);
    SetEach(spec, &Attention::kv_heads, 4);
    SetEach(spec, &Attention::head_dim, 16);
    SetEach(spec, &Mlp::ffn, 96);
    const std::vector<double> divisors(static_cast<size_t>(RotatedDim(spec) / 2), 1.5);
    const RopeScaling scalings[] = {
        {.kind = RopeScalingKind::kLlama3},
        {.factor = 2, .kind = RopeScalingKind::kLinear},
        {.factor = 4, .original_max_position = 512, .kind = RopeScalingKind::kYarn},
        {.original_max_position = 77,
         .kind = RopeScalingKind::kLongRope,
         .attention_factor = 1.25,
         .short_factor = divisors,
         .long_factor = divisors},
        {.factor = 2, .original_max_position = spec.max_position, .kind = RopeScalingKind::kDynamic},
        {.kind = RopeScalingKind::kNtkAlpha, .alpha = 1000},
    };
    for (const RopeScaling& scaling : scalings) {
      spec.rope.scaling = scaling;
      if (!CheckTrainable(spec).ok()) continue;
      ++accepted;
      const std::string text = ToHuggingFaceConfig(spec, DType::kF32);
      const absl::StatusOr<Architecture> back = FromHuggingFaceConfig(text, "config.json");
      ASSERT_TRUE(back.ok()) << back.status() << text;
      EXPECT_EQ(*back, spec) << text;
    }
  }
  EXPECT_GT(accepted, 100);
}

// From rope_theta alone, transformers 5 would take the default base for OLMo 3's layers with a window.
TEST(HuggingFaceConfig, AnotherBaseOfOlmo3IsStatedForBothTypesOfLayers) {
  Architecture spec = *FromHuggingFaceConfig(
      absl::StrReplaceAll(With(R"("rope_theta": 500000)"), {{"\"llama\"", "\"olmo3\""}}), "config.json");
  EXPECT_FALSE(Json::parse(ToHuggingFaceConfig(spec, DType::kF32)).contains("rope_parameters"));
  spec.rope.theta = spec.window_rope_theta = 7000;
  const std::string text = ToHuggingFaceConfig(spec, DType::kF32);
  const Json tables = Json::parse(text)["rope_parameters"];
  EXPECT_EQ(tables["sliding_attention"]["rope_theta"], 7000);
  EXPECT_EQ(tables["full_attention"]["rope_theta"], 7000);
  EXPECT_EQ(*FromHuggingFaceConfig(text, "config.json"), spec);
}

// transformers takes only one of the tables, so they must not differ.
TEST(HuggingFaceConfig, TwoTablesOfRopeMustAgree) {
  const auto error = [](const char* fields) {
    return FromHuggingFaceConfig(With(fields), "config.json").status().ToString();
  };
  constexpr char kYarnTable[] =
      R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 512, "rope_theta": 500})";
  EXPECT_THAT(error(absl::StrCat(R"("rope_scaling": {"rope_type": "default", "rope_theta": 500},
                                    "rope_parameters": )",
                                 kYarnTable)
                        .c_str()),
              HasSubstr("field 'rope_scaling'"));
  EXPECT_THAT(error(absl::StrCat(R"("rope_scaling": {"rope_type": "yarn", "factor": 4,
                                    "original_max_position_embeddings": 512}, "rope_parameters": )",
                                 kYarnTable)
                        .c_str()),
              HasSubstr("field 'rope_scaling'"));
  EXPECT_EQ(
      error(absl::StrCat(R"("rope_scaling": )", kYarnTable, R"(, "rope_parameters": )", kYarnTable).c_str()),
      "OK");
}

// Values that the classes of transformers do not take as the default.
TEST(HuggingFaceConfig, WhatIsNotTheDefaultIsRefused) {
  const auto error = [](const char* family, const char* fields) {
    const std::string text =
        absl::StrReplaceAll(With(fields), {{"\"llama\"", absl::StrCat("\"", family, "\"")}});
    return FromHuggingFaceConfig(text, "config.json").status().ToString();
  };
  for (const char* truncate : {"null", "0", "\"false\""}) {
    EXPECT_THAT(error("llama", absl::StrCat(R"("rope_scaling": {"type": "yarn", "factor": 4, "truncate": )",
                                            truncate, "}")
                                   .c_str()),
                HasSubstr("truncate"));
  }
  EXPECT_THAT(error("gpt2", R"("layer_norm_eps": 0.05)"), HasSubstr("layer_norm_eps"));
  EXPECT_THAT(error("internlm3", R"("head_dim": null)"), HasSubstr("head_dim"));
  EXPECT_THAT(error("falcon", R"("parallel_attn": null)"), HasSubstr("parallel_attn"));
  for (const char* types : {"[]", R"(["full_attention"])"})
    EXPECT_THAT(error("llama", absl::StrCat(R"("layer_types": )", types).c_str()), HasSubstr("layer_types"));
}

// transformers assumes a window of 4,096 tokens if the field is absent, and no window if it is null.
TEST(HuggingFaceConfig, AMistralHasAWindowUnlessItIsNull) {
  const auto window = [](const char* field) {
    std::string text = absl::StrReplaceAll(With(field), {{"llama", "mistral"}});
    return WindowOf(*FromHuggingFaceConfig(text, "config.json"));
  };
  EXPECT_EQ(window(R"("head_dim": 16)"), 4096);
  EXPECT_EQ(window(R"("sliding_window": null)"), 0);
  EXPECT_EQ(window(R"("sliding_window": 128)"), 128);
  EXPECT_EQ(window(R"("sliding_window": 128, "layer_types": ["full_attention", "full_attention"])"), 128);
}

TEST(HuggingFaceConfig, ActivationsAreThoseOfTheFile) {
  using kernels::Activation;
  const auto read = [](const char* family, const char* fields) {
    const std::string text = absl::StrReplaceAll(With(fields), {{"llama", family}});
    return FromHuggingFaceConfig(text, "config.json");
  };
  const auto activation = [&](const char* family, const char* fields) {
    const absl::StatusOr<Architecture> spec = read(family, fields);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return MlpOf(*spec).activation;
  };
  const auto error = [&](const char* family, const char* fields) {
    return read(family, fields).status().ToString();
  };
  EXPECT_EQ(activation("llama", R"("hidden_act": "relu")"), Activation::kRelu);
  EXPECT_EQ(activation("llama", R"("hidden_act": "gelu_fast")"), Activation::kGeluTanh);
  EXPECT_EQ(activation("gemma2", R"("hidden_activation": "gelu")"), Activation::kGelu);
  EXPECT_EQ(activation("gemma2", R"("hidden_activation": "silu", "hidden_act": "relu")"), Activation::kSiLU);
  // The class of Gemma 2 does not read hidden_act.
  EXPECT_THAT(error("gemma2", R"("hidden_act": "relu")"),
              HasSubstr("field 'hidden_act' is \"relu\" but must be \"gelu_pytorch_tanh\""));
  // The class of Gemma 1 takes gelu for its approximation, and versions differ in which key they read.
  for (const char* fields : {R"("hidden_act": "gelu_pytorch_tanh")", R"("hidden_act": "gelu")",
                             R"("hidden_act": "gelu", "hidden_activation": null)",
                             R"("hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh")"}) {
    EXPECT_EQ(activation("gemma", fields), Activation::kGeluTanh) << fields;
  }
  EXPECT_THAT(error("gemma", R"("hidden_act": "relu")"), HasSubstr("field 'hidden_act' is"));
  EXPECT_THAT(error("gemma", R"("hidden_activation": "silu")"), HasSubstr("field 'hidden_activation' is"));
}

TEST(HuggingFaceConfig, OddValuesSurviveTheRoundTrip) {
  Architecture spec = *Preset("toy-1m");
  SetEach(spec, &Attention::head_dim, 48);
  spec.norm.eps = 1.1e-7;
  spec.rope.theta = 12345.678;
  spec.init_std = 0.1 + 0.2;
  spec.rope.scaling = RopeScaling{3.7, 1.5, 2.5, 333};
  spec.tie_embeddings = true;
  for (int biases = 0; biases < 4; ++biases) {
    // The four kinds that Hugging Face can express: none, mlp, attention (Llama), q/k/v (Qwen2).
    SetEach(spec, &Mlp::bias, biases == 1);
    SetEach(spec, &Attention::qkv_bias, biases >= 2);
    SetEach(spec, &Attention::out_bias, biases == 2);
    ASSERT_TRUE(Validate(spec).ok());
    const std::string text = ToHuggingFaceConfig(spec, DType::kF32);
    EXPECT_THAT(text, HasSubstr(biases == 3 ? "Qwen2ForCausalLM" : "LlamaForCausalLM"));
    EXPECT_THAT(text, HasSubstr("\"torch_dtype\": \"float32\""));
    const absl::StatusOr<Architecture> back = FromHuggingFaceConfig(text, "config.json");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, spec) << text;
  }
}

TEST(HuggingFaceConfig, IdsOfSpecialTokensSurviveTheRoundTrip) {
  const SpecialTokens tokens{.bos = {128000}, .eos = {128001, 128008, 128009}, .pad = {}};
  const std::string text = ToHuggingFaceConfig(*Preset("toy-1m"), DType::kF32, tokens);
  EXPECT_EQ(*ReadSpecialTokens(text, "config.json"), tokens);
  // Absent, transformers would take 1 and 2 for a Llama.
  EXPECT_THAT(text, HasSubstr("\"pad_token_id\": null"));
  EXPECT_THAT(text, HasSubstr("\"bos_token_id\": 128000,"));
}

TEST(HuggingFaceConfig, IdsOfSpecialTokensThatAreNone) {
  EXPECT_EQ(*ReadSpecialTokens(R"({"eos_token_id": [7], "pad_token_id": -1})", "c.json"),
            (SpecialTokens{.eos = {7}, .pad = {-1}}));
  for (const char* wrong : {R"({"eos_token_id": "</s>"})", R"({"eos_token_id": [1, 2.5]})"}) {
    EXPECT_THAT(ReadSpecialTokens(wrong, "c.json").status().message(),
                HasSubstr("c.json: field 'eos_token_id' must be an id, a list of ids or null"));
  }
  EXPECT_FALSE(ReadSpecialTokens("[1]", "c.json").ok());
}

TEST(HuggingFaceConfig, NewRopeParametersMeanTheSameAsTheOldFields) {
  const absl::StatusOr<Architecture> spec =
      FromHuggingFaceConfig(With(R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8,
              "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192})"),
                            "config.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rope.theta, 5e5);
  EXPECT_EQ(spec->rope.scaling, RopeScaling{});
}

// Stated twice, or in the form of either version of transformers.
TEST(HuggingFaceConfig, FormsOfYarnMeanTheSame) {
  const auto read = [](const char* fields) {
    const absl::StatusOr<Architecture> spec = FromHuggingFaceConfig(With(fields), "config.json");
    EXPECT_TRUE(spec.ok()) << fields << ": " << spec.status();
    return spec.ok() ? spec->rope.scaling : std::nullopt;
  };
  RopeScaling yarn = {.factor = 4, .original_max_position = 512, .kind = RopeScalingKind::kYarn};
  for (const char* fields :
       {R"("rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512})",
        R"("rope_parameters": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 512,
            "beta_fast": 32, "beta_slow": 1, "truncate": true, "mscale": 1.0, "rope_theta": 1e4})",
        R"("rope_scaling": {"type": "yarn", "factor": 4}, "original_max_position_embeddings": 512)",
        // Without it, transformers uses max_position_embeddings.
        R"("rope_scaling": {"type": "yarn", "factor": 4}, "max_position_embeddings": 512)"}) {
    EXPECT_EQ(read(fields), yarn) << fields;
  }
  yarn.attention_factor = 1.0857263992561355;  // by transformers 5.23.0
  yarn.factor = 40;
  const std::optional<RopeScaling> with_mscale =
      read(R"("rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 512,
              "mscale": 1.0, "mscale_all_dim": 0.707})");
  ASSERT_TRUE(with_mscale.has_value());
  EXPECT_DOUBLE_EQ(with_mscale->attention_factor, yarn.attention_factor);
  const std::optional<RopeScaling> all =
      read(R"("rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 512,
              "beta_fast": 16, "beta_slow": 0.5, "truncate": false, "attention_factor": 1.25,
              "mscale": 1.0, "mscale_all_dim": 0.707})");
  EXPECT_EQ(all, (RopeScaling{.factor = 40,
                              .original_max_position = 512,
                              .kind = RopeScalingKind::kYarn,
                              .beta_fast = 16,
                              .beta_slow = 0.5,
                              .truncate = false,
                              .attention_factor = 1.25}));
}

// Phi 3.5, with the names that its versions have for LongRoPE.
TEST(HuggingFaceConfig, LongRopeOfPhi3) {
  const auto read = [](const char* fields) {
    const std::string text = absl::StrReplaceAll(With(fields), {{"\"llama\"", "\"phi3\""}});
    return FromHuggingFaceConfig(text, "config.json");
  };
  const std::string table = R"("short_factor": [1, 1.25, 1.5, 2], "long_factor": [2, 3, 4, 5.5]})";
  const std::string rest =
      R"(, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
          "partial_rotary_factor": 0.5)";
  const RopeScaling expected = {.original_max_position = 4096,
                                .kind = RopeScalingKind::kLongRope,
                                .attention_factor = LongRopeAttentionFactor(32, 4096),
                                .short_factor = {1, 1.25, 1.5, 2},
                                .long_factor = {2, 3, 4, 5.5}};
  for (const char* begin :
       {R"("rope_scaling": {"type": "longrope", )", R"("rope_scaling": {"type": "su", )",
        R"("rope_scaling": {"type": "yarn", )", R"("rope_scaling": {"type": "su", "rope_type": "longrope", )",
        R"("rope_parameters": {"rope_type": "longrope", "rope_theta": 10000, "partial_rotary_factor": 0.5,
            "original_max_position_embeddings": 4096, "type": "longrope", )",
        R"("rope_scaling": {"type": "longrope", "factor": 32, )"}) {
    const absl::StatusOr<Architecture> spec = read(absl::StrCat(begin, table, rest).c_str());
    ASSERT_TRUE(spec.ok()) << begin << ": " << spec.status();
    EXPECT_EQ(spec->rope.scaling, expected) << begin;
  }
  // 4,096 is the default of this family.
  const std::string no_length = R"(, "max_position_embeddings": 131072, "partial_rotary_factor": 0.5)";
  EXPECT_EQ(
      read(absl::StrCat(R"("rope_scaling": {"type": "longrope", )", table, no_length).c_str())->rope.scaling,
      expected);
  const auto error = [&](const char* fields) { return read(fields).status().ToString(); };
  EXPECT_THAT(error(R"("rope_scaling": {"type": "linear", "factor": 2})"),
              HasSubstr("field 'type' is \"linear\" but must be \"longrope\" or \"default\""));
  EXPECT_THAT(
      error(absl::StrCat(R"("rope_scaling": {"type": "longrope", "original_max_position_embeddings": 9, )",
                         table, R"(, "partial_rotary_factor": 0.5)")
                .c_str()),
      HasSubstr("must be the same as outside of the table (4096)"));
  Architecture linear = *read(R"("head_dim": 16)");
  linear.rope.scaling = RopeScaling{.factor = 2, .kind = RopeScalingKind::kLinear};
  EXPECT_THAT(std::string(CheckTrainable(linear).message()), HasSubstr("model.rope_scaling"));
}

TEST(HuggingFaceConfig, ScalingsOfRopeSurviveTheRoundTrip) {
  const std::vector<double> divisors = {1, 1.5, 2, 3, 4.5, 5, 6, 7.7};
  const RopeScaling yarn = {
      .factor = 3.7, .original_max_position = 333, .kind = RopeScalingKind::kYarn, .beta_fast = 31};
  RopeScaling unrounded = yarn;
  unrounded.beta_slow = 1.1;
  unrounded.truncate = false;
  unrounded.attention_factor = 0.1 + 0.2;
  RopeScaling long_rope = {.original_max_position = 77,
                           .kind = RopeScalingKind::kLongRope,
                           .attention_factor = 1.25,
                           .short_factor = divisors,
                           .long_factor = divisors};
  for (const char* family : {"llama", "phi3"}) {
    Architecture spec = *FromHuggingFaceConfig(
        absl::StrReplaceAll(kMinimal, {{"\"llama\"", absl::StrCat("\"", family, "\"")}}), "config.json");
    RopeScaling implied = long_rope;
    implied.attention_factor = LongRopeAttentionFactor(static_cast<double>(spec.max_position) / 77, 77);
    std::vector<RopeScaling> scalings = {long_rope, implied};
    if (spec.family == "llama") scalings.insert(scalings.end(), {yarn, unrounded});
    for (const RopeScaling& scaling : scalings) {
      spec.rope.scaling = scaling;
      const std::string text = ToHuggingFaceConfig(spec, DType::kF32);
      const absl::StatusOr<Architecture> back = FromHuggingFaceConfig(text, "config.json");
      ASSERT_TRUE(back.ok()) << back.status() << text;
      EXPECT_EQ(*back, spec) << text;
      const bool is_stated = scaling == long_rope || scaling == unrounded;
      EXPECT_EQ(text.find("attention_factor") != std::string::npos, is_stated) << text;
    }
  }
}

TEST(HuggingFaceConfig, HarmlessSpellingsAreAccepted) {
  for (
      const char* extra :
      {R"("rope_scaling": null)", R"("rope_scaling": {"type": "default"})",
       R"("rope_parameters": {"rope_type": "default", "rope_theta": 10000.0})", R"("attention_dropout": 0)",
       R"("head_dim": null)", R"("num_key_value_heads": null)", R"("torch_dtype": "float16")",
       R"("layer_types": ["full_attention", "full_attention"])", R"("_name_or_path": "x")",
       // Qwen 2.5 has the first; null is the default of every field.
       R"("use_mrope": false)", R"("mup_scale": null)", R"("sliding_window": null)", R"("num_beams": 4)",
       R"("is_decoder": false)", R"("pruned_heads": {})", R"("partial_rotary_factor": 1)",
       // Another name or another spelling of the same.
       R"("hidden_act": "swish")", R"("rope_scaling": {})",
       R"("rope_scaling": {"type": "linear", "factor": 1.0})",
       R"("rope_scaling": {"rope_type": "default", "factor": 1.0})",
       R"("rope_parameters": {"rope_theta": 1e4})", R"("architectures": [])",
       R"("architectures": ["LlamaModel"])", R"("max_position_embeddings": 2048.0)",
       R"("num_key_value_heads": 4.0)",
       // What other versions of transformers and other families write, with the value that changes nothing.
       R"("tf_legacy_loss": false)", R"("gradient_checkpointing": true)", R"("is_decoder": true)",
       R"("is_causal": true)", R"("use_sliding_window": false, "sliding_window": 4096)",
       R"("attention_bias": false, "mlp_bias": false, "use_bias": false, "bias": false)",
       R"("num_experts": 0, "num_local_experts": 0, "output_router_logits": false, "mlp_only_layers": [])",
       R"("use_qk_norm": false, "qk_layernorm": false, "use_rope": true, "rotary_pct": 1.0, "rope_ratio": 1)",
       R"("hidden_dropout": 0.0, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0.0)",
       R"("attention_dropout": 0.1, "residual_dropout": 0.1, "embd_pdrop": 0.5)",
       R"("embedding_multiplier": 1.0, "residual_multiplier": 1.0, "logits_scaling": 1, "logit_scale": 1.0)",
       R"("auto_map": {"AutoTokenizer": ["tokenization_x.XTokenizer", null]})",
       R"("loss_type": "ForCausalLM")", R"("original_max_position_embeddings": 99)",
       R"("bos_token": "<s>", "model_max_length": 512, "name_or_path": "x", "license": "mit")",
       R"("keys_to_ignore_at_inference": ["past_key_values"], "penalty_alpha": 0.6, "use_flash_attn": true)"}) {
    const absl::StatusOr<Architecture> spec = FromHuggingFaceConfig(With(extra), "config.json");
    EXPECT_TRUE(spec.ok()) << extra << ": " << spec.status();
    if (spec.ok()) {
      EXPECT_EQ(*spec, *FromHuggingFaceConfig(kMinimal, "config.json")) << extra;
    }
  }
}

TEST(HuggingFaceConfig, WhatWouldChangeTheMathematicsIsAnErrorThatNamesIt) {
  for (const auto& [extra, named] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("hidden_act": "mish")",
            "field 'hidden_act' is \"mish\" but must be one of silu, gelu, gelu_pytorch_tanh, relu, relu2"},
           {R"("hidden_act": 7)", "hidden_act"},
           {R"("attention_dropout": 1.5)",
            "field 'attention_dropout' is 1.5 but must be a number of at least 0 and less than 1"},
           {R"("hidden_dropout": "0.1")", "hidden_dropout"},
           {R"("layerdrop": 0.1)", "layerdrop"},
           {R"("pretraining_tp": 2)", "pretraining_tp"},
           {R"("rope_scaling": {"rope_type": "yarn"})", "'factor' is absent but must be a number"},
           {R"("rope_scaling": {"rope_type": "yarn", "factor": 2.0, "finetuned": true})", "finetuned"},
           {R"("rope_scaling": {"rope_type": "yarn", "factor": 2.0, "low_freq_factor": 2.0})",
            "rope_scaling: field 'low_freq_factor' is not known"},
           {R"("rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": "32"})", "beta_fast"},
           {R"("rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 0})",
            "'attention_factor' is 0 but must be a positive number"},
           {R"("rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 512},
               "original_max_position_embeddings": 1024)",
            "is 512 but must be the same as outside of the table (1024)"},
           {R"("rope_scaling": {"rope_type": "su", "factor": 2.0})", "su"},
           {R"("rope_scaling": {"rope_type": "longrope", "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]})",
            "'short_factor' is absent but must be a list of numbers"},
           {R"("rope_scaling": {"rope_type": "longrope", "long_factor": [1, 2], "short_factor": [1, 2]})",
            "short_factor has 2 numbers but must have 8"},
           {R"("rope_scaling": {"rope_type": "llama3", "factor": 2.0})", "low_freq_factor"},
           {R"("rope_scaling": {"rope_type": "default", "attention_factor": 2.0})", "attention_factor"},
           {R"("rope_scaling": {"factor": 2.0})", "rope_type"},
           {R"("rope_scaling": 2.0)", "rope_scaling"},
           {R"("rope_theta": 7.0, "rope_parameters": {"rope_type": "default", "rope_theta": 8.0})",
            "rope_theta"},
           {R"("quantization_config": {"bits": 4})", "quantization_config"},
           {R"("sliding_window": 4096)", "sliding_window"},
           {R"("logit_scale": 2.0)", "logit_scale"},
           {R"("use_mrope": true)", "use_mrope"},
           {R"("partial_rotary_factor": 0.5)", "partial_rotary_factor"},
           {R"("use_rope": false)", "field 'use_rope' is false but must be true"},
           {R"("rope_scaling": {"type": "linear"})", "'factor' is absent but must be a positive number"},
           {R"("rope_scaling": {"rope_type": "proportional", "factor": 1.0})", "proportional"},
           {R"("rope_scaling": {"rope_type": "ntk_alpha", "alpha": 2.0})", "ntk_alpha"},
           {R"("rope_scaling": {"rope_type": "dynamic", "alpha": 2.0, "factor": 1.0})",
            "'alpha' is not known"},
           {R"("rope_scaling": {"rope_type": "dynamic"})", "'factor' is absent"},
           {R"("rope_scaling": {"rope_type": "default", "factor": 2.0})", "factor"},
           {R"("attention_multiplier": 1.0)", "attention_multiplier"},  // in place of 1 / sqrt(head_dim)
           {R"("scale_depth": 1)", "scale_depth"},
           {R"("final_logit_softcapping": 0.0)", "final_logit_softcapping"},
           {R"("is_causal": false)", "is_causal"},
           {R"("use_sliding_window": true, "sliding_window": 4096)", "use_sliding_window"},
           {R"("bias": true)", "field 'bias' is true but must be false"},
           {R"("num_experts": 8)", "num_experts"},
           {R"("resid_pdrop": -0.1)", "resid_pdrop"},
           {R"("residual_multiplier": 0.22)", "residual_multiplier"},
           {R"("norm_type": "layer_norm")", "\"rms\" or \"rms_norm\" or \"rmsnorm\""},
           {R"("auto_map": {"AutoModelForCausalLM": "modeling_x.X"})", "auto_map"},
           {R"("loss_type": "ForSequenceClassification")", "loss_type"},
           {R"("architectures": ["Qwen2Model"])", "architectures"},
           {R"("max_position_embeddings": 512.5)", "max_position_embeddings"},
           {R"("layer_types": ["sliding_attention"])", "layer_types"},
           {R"("num_key_value_heads": 3)", "kv_heads"},
           {R"("head_dim": 15)", "head_dim"},
           {R"("rms_norm_eps": "small")", "rms_norm_eps"},
           {R"("tie_word_embeddings": 1)", "tie_word_embeddings"},
           {R"("architectures": ["LlamaForSequenceClassification"])", "architectures"},
           {R"("max_position_embeddings": 18446744073709551615)", "max_position_embeddings"},
           {R"("initializer_range": 1e999)", "config.json"},
       }) {
    const absl::Status status = FromHuggingFaceConfig(With(extra), "dir/config.json").status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << extra << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
    EXPECT_THAT(std::string(status.message()), HasSubstr("dir/config.json"));
  }
}

TEST(HuggingFaceConfig, AMissingDimensionIsNamed) {
  for (const char* field : {"model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "vocab_size"}) {
    const std::string text = absl::StrReplaceAll(kMinimal, {{field, "use_cache"}});
    const absl::Status status = FromHuggingFaceConfig(text, "config.json").status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  }
}

TEST(HuggingFaceConfig, RubbishIsAnErrorAndNothingWorse) {
  for (const char* text :
       {"", "[]", "null", "{", "\xff\xfe", R"({"model_type": 3})", "{\"model_type\": \"\xff\"}"}) {
    EXPECT_EQ(ExitCodeFor(FromHuggingFaceConfig(text, "config.json").status()), ExitCode::kBadData) << text;
  }
  const std::string deep = std::string(100000, '[');
  EXPECT_EQ(ExitCodeFor(FromHuggingFaceConfig(deep, "config.json").status()), ExitCode::kBadData);
}

TEST(HuggingFaceConfig, Qwen2IsLlamaWithThreeBiases) {
  const std::string text =
      absl::StrReplaceAll(kMinimal, {{"llama", "qwen2"},
                                     {"\"vocab_size\"",
                                      "\"use_sliding_window\": false, \"sliding_window\": 9, "
                                      "\"max_window_layers\": 2, \"vocab_size\""}});
  const absl::StatusOr<Architecture> spec = FromHuggingFaceConfig(text, "config.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(AttentionOf(*spec).qkv_bias);
  EXPECT_FALSE(AttentionOf(*spec).out_bias);
  // Whatever these say, its queries, keys and values have biases, and its output has none.
  for (const char* said : {"\"qkv_bias\": true", "\"attention_bias\": false", "\"attention_bias\": true",
                           "\"mlp_bias\": false", "\"pretraining_tp\": 1"}) {
    const std::string with = absl::StrReplaceAll(text, {{"\"use_sliding_window\": false", said}});
    EXPECT_EQ(*FromHuggingFaceConfig(with, "config.json"), *spec) << said;
  }
  EXPECT_FALSE(
      FromHuggingFaceConfig(absl::StrReplaceAll(text, {{"\"max_window_layers\": 2", "\"qkv_bias\": false"}}),
                            "config.json")
          .ok());
  const std::string windowed =
      absl::StrReplaceAll(text, {{"\"use_sliding_window\": false", "\"use_sliding_window\": true"}});
  const absl::StatusOr<Architecture> with_window = FromHuggingFaceConfig(windowed, "config.json");
  ASSERT_TRUE(with_window.ok()) << with_window.status();
  EXPECT_EQ(WindowOf(*with_window), 0);  // max_window_layers is 2, and so is the number of layers
}

// transformers' configuration_gemma3.py: rope_parameters by layer type replace rope_theta, rope_scaling and
// rope_local_base_freq. The list layer_types replaces sliding_window_pattern.
TEST(HuggingFaceConfig, TheFormsOfGemma3MeanTheSame) {
  const auto read = [](const char* fields) {
    return FromHuggingFaceConfig(absl::StrReplaceAll(With(fields), {{"\"llama\"", "\"gemma3_text\""}}),
                                 "config.json");
  };
  const absl::StatusOr<Architecture> old_form = read(
      R"("rope_theta": 5e5, "rope_local_base_freq": 50, "rope_scaling": {"rope_type": "linear", "factor": 8},
              "sliding_window": 16, "sliding_window_pattern": 2, "query_pre_attn_scalar": 64)");
  ASSERT_TRUE(old_form.ok()) << old_form.status();
  EXPECT_EQ(LayerTypesOf(*old_form), (std::vector<std::string>{"sliding_attention", "full_attention"}));
  EXPECT_EQ(old_form->window_rope_theta, 50);
  EXPECT_EQ(AttentionOf(*old_form).scale, 0.125);
  EXPECT_EQ(old_form->rope.scaling, (RopeScaling{.factor = 8, .kind = RopeScalingKind::kLinear}));
  const absl::StatusOr<Architecture> new_form =
      read(R"("rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 5e5, "factor": 8},
              "sliding_attention": {"rope_type": "default", "rope_theta": 50}}, "sliding_window": 16,
              "layer_types": ["sliding_attention", "full_attention"], "sliding_window_pattern": 6,
              "query_pre_attn_scalar": 64)");
  ASSERT_TRUE(new_form.ok()) << new_form.status();
  EXPECT_EQ(*new_form, *old_form);
  // modeling_gemma3.py does not pass this cap on to attention.
  EXPECT_THAT(read(R"("attn_logit_softcapping": 50.0)").status().ToString(),
              HasSubstr("attn_logit_softcapping"));
  EXPECT_THAT(read(R"("layer_types": ["chunked_attention", "full_attention"])").status().ToString(),
              HasSubstr("layer_types"));
}

// transformers' configuration_smollm3.py: a 0 in no_rope_layers is a layer without positions; without the
// list, every fourth layer is one.
TEST(HuggingFaceConfig, LayersOfSmolLm3WithoutPositions) {
  const auto types = [](const char* fields) {
    const std::string text = absl::StrReplaceAll(
        With(fields), {{"llama", "smollm3"}, {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4"}});
    const absl::StatusOr<Architecture> spec = FromHuggingFaceConfig(text, "config.json");
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? absl::StrJoin(LayerTypesOf(*spec), " ") : "";
  };
  EXPECT_EQ(types(R"("head_dim": 16)"), "full_attention full_attention full_attention full_attention_nope");
  EXPECT_EQ(types(R"("no_rope_layer_interval": 2)"), "full_attention full_attention_nope");
  EXPECT_EQ(types(R"("no_rope_layers": [0, 1, 1, 1])"),
            "full_attention_nope full_attention full_attention full_attention");
  EXPECT_EQ(types(R"("no_rope_layers": [1, 1, 1, 1])"), "full_attention");
  for (const char* wrong : {"[true, false]", "[1, 2]", "[1]", "1"}) {
    const std::string text = absl::StrReplaceAll(With(absl::StrCat("\"no_rope_layers\": ", wrong).c_str()),
                                                 {{"llama", "smollm3"}});
    EXPECT_THAT(FromHuggingFaceConfig(text, "config.json").status().ToString(), HasSubstr("no_rope_layers"))
        << wrong;
  }
}

// A field that is there but not read would make another model of it.
TEST(HuggingFaceConfig, ListsAndTablesByLayerAreReadOrRefused) {
  const auto error = [](const char* type, const char* fields) {
    const std::string text =
        absl::StrReplaceAll(With(fields), {{"\"llama\"", absl::StrCat("\"", type, "\"")}});
    return FromHuggingFaceConfig(text, "config.json").status().ToString();
  };
  EXPECT_THAT(error("ministral", R"("layer_types": "full_attention")"), HasSubstr("layer_types"));
  EXPECT_THAT(error("ministral", R"("layer_types": ["full_attention"])"), HasSubstr("layer_types"));
  constexpr char kScaled[] = R"("rope_parameters": {"full_attention": {"rope_type": "default"},
      "sliding_attention": {"rope_theta": 10000, "type": "linear", "factor": 8.0}})";
  EXPECT_THAT(error("gemma3_text", kScaled), HasSubstr("rope_parameters: sliding_attention"));
  EXPECT_THAT(error("gemma3_text", R"("query_pre_attn_scalar": 0)"),
              HasSubstr("field 'query_pre_attn_scalar' is 0 but must be a positive number"));
  EXPECT_THAT(error("granite", R"("logits_scaling": 0)"), HasSubstr("field 'logits_scaling' is 0"));
}

// transformers' configuration_gpt_bigcode.py computes num_key_value_heads from multi_query.
TEST(HuggingFaceConfig, MultiQueryMeansOneHeadOfKeysAndValues) {
  const auto kv_heads = [](const char* fields) {
    const std::string text = absl::StrCat(
        R"({"model_type": "gpt_bigcode", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100)", fields,
        "}");
    const absl::StatusOr<Architecture> spec = FromHuggingFaceConfig(text, "config.json");
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? AttentionOf(*spec).kv_heads : 0;
  };
  EXPECT_EQ(kv_heads(""), 1);
  EXPECT_EQ(kv_heads(R"(, "multi_query": true, "num_key_value_heads": 4)"), 1);
  EXPECT_EQ(kv_heads(R"(, "multi_query": false)"), 4);
  Architecture spec = *FromHuggingFaceConfig(
      R"({"model_type": "gpt_bigcode", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100})", "c");
  SetEach(spec, &Attention::kv_heads, 2);
  EXPECT_THAT(CheckTrainable(spec).ToString(), HasSubstr("model.kv_heads"));
}

// As published with Falcon 7B; the other sizes have other norms and other keys and values.
TEST(HuggingFaceConfig, TheFormsOfFalconAreToldApart) {
  const auto read = [](const char* fields) {
    return FromHuggingFaceConfig(
        absl::StrCat(R"({"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
            "num_attention_heads": 4, "alibi": false, "apply_residual_connection_post_layernorm": false,
            "auto_map": {"AutoConfig": "configuration_falcon.FalconConfig",
                         "AutoModelForCausalLM": "modeling_falcon.FalconForCausalLM"},
            "bias": false, "multi_query": true, "parallel_attn": true, "hidden_dropout": 0.0,
            "layer_norm_epsilon": 1e-05, "new_decoder_architecture": )",
                     fields, "}"),
        "config.json");
  };
  const absl::StatusOr<Architecture> of_7b = read("false, \"num_kv_heads\": 4");
  ASSERT_TRUE(of_7b.ok()) << of_7b.status();
  EXPECT_EQ(of_7b->family, "falcon");
  EXPECT_EQ(AttentionOf(*of_7b).kv_heads, 1);
  EXPECT_EQ(MlpOf(*of_7b).ffn, 256);
  EXPECT_EQ(NormPlacesOf(*of_7b), NormPlaces::kShared);
  const absl::StatusOr<Architecture> of_11b =
      read(R"(true, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1)");
  ASSERT_TRUE(of_11b.ok()) << of_11b.status();
  EXPECT_EQ(of_11b->family, "falcon");
  EXPECT_EQ(AttentionOf(*of_11b).kv_heads, 2);
  const absl::StatusOr<Architecture> of_40b = read(R"(true, "num_kv_heads": 2)");
  ASSERT_TRUE(of_40b.ok()) << of_40b.status();
  EXPECT_EQ(of_40b->family, "falcon_40b");
  EXPECT_EQ(AttentionOf(*of_40b).kv_heads, 2);
  EXPECT_EQ(NormPlacesOf(*of_40b), NormPlaces::kParallel);
  EXPECT_EQ(ModelTypeOf(*of_40b), "falcon");
  EXPECT_THAT(ToHuggingFaceConfig(*of_40b, DType::kBF16), HasSubstr("\"num_ln_in_parallel_attn\": 2"));
  const auto error = [&](const char* field, const char* other) {
    std::string text = ToHuggingFaceConfig(*of_7b, DType::kBF16);
    EXPECT_THAT(text, HasSubstr(absl::StrCat(field, ",")));
    return FromHuggingFaceConfig(absl::StrReplaceAll(text, {{field, other}}), "c").status().ToString();
  };
  EXPECT_THAT(error("\"parallel_attn\": true", "\"parallel_attn\": false"), HasSubstr("parallel_attn"));
  EXPECT_THAT(error("\"bias\": false", "\"alibi\": true"), HasSubstr("field 'alibi' is true"));
  EXPECT_THAT(error("\"bias\": false", R"("auto_map": {"AutoModelForCausalLM": "modeling_x.X"})"),
              HasSubstr("but must be one whose AutoModelForCausalLM is FalconForCausalLM"));
}

// Folders of these families contain the code of their class. Where transformers has one, too, it is that of
// Llama.
TEST(HuggingFaceConfig, ClassesOfPublishedCodeAreAccepted) {
  const auto read = [](const char* type, const char* fields) {
    const std::string text =
        absl::StrReplaceAll(With(fields), {{"\"llama\"", absl::StrCat("\"", type, "\"")}});
    return FromHuggingFaceConfig(text, "config.json");
  };
  for (const char* architectures : {"InternLM3ForCausalLM", "LlamaForCausalLM", "LlamaModel"}) {
    const std::string fields = absl::StrCat(
        R"("qkv_bias": false, "bias": false, "head_dim": 16, "architectures": [")", architectures,
        R"("], "auto_map": {"AutoModelForCausalLM": "modeling_internlm3.InternLM3ForCausalLM"})");
    EXPECT_TRUE(read("internlm3", fields.c_str()).ok()) << read("internlm3", fields.c_str()).status();
  }
  EXPECT_THAT(read("internlm3", R"("attention_bias": true)").status().ToString(),
              HasSubstr("attention_bias"));
  EXPECT_TRUE(AttentionOf(*read("internlm2", R"("rms_norm_eps": 1e-5)")).qkv_bias)
      << "the default of its code";
  EXPECT_FALSE(AttentionOf(*read("internlm2", R"("bias": false)")).out_bias);
}

TEST(HuggingFaceConfig, AGptNeoxMayRunAttentionAndMlpOneAfterTheOther) {
  const std::string text =
      absl::StrReplaceAll(With(R"("use_parallel_residual": false)"), {{"\"llama\"", "\"gpt_neox\""}});
  const absl::StatusOr<Architecture> spec = FromHuggingFaceConfig(text, "config.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "gpt_neox_sequential");
  EXPECT_EQ(NormPlacesOf(*spec), NormPlaces::kBefore);
  EXPECT_EQ(FromHuggingFaceConfig(absl::StrReplaceAll(text, {{"false", "true"}}), "config.json")->family,
            "gpt_neox");
}

TEST(HuggingFaceConfig, GptJStatesTheNumberOfRotatedElements) {
  const auto read = [](const char* fields) {
    return FromHuggingFaceConfig(
        absl::StrCat(R"({"model_type": "gptj", "n_embd": 392, "n_layer": 2, "n_head": 4, "vocab_size": 100)",
                     fields, "}"),
        "config.json");
  };
  EXPECT_EQ(RotatedDim(*read("")), 64);
  // Fractions of 98 that are slightly too small as doubles.
  for (int dim = 2; dim <= 98; dim += 2)
    EXPECT_EQ(RotatedDim(*read(absl::StrCat(R"(, "rotary_dim": )", dim).c_str())), dim);
  for (const char* wrong : {R"(, "rotary_dim": 0)", R"(, "rotary_dim": 100)"})
    EXPECT_THAT(read(wrong).status().ToString(),
                HasSubstr("a whole number from 1 to the size of a head (98)"));
  EXPECT_THAT(read(R"(, "rotary_dim": 7)").status().ToString(), HasSubstr("is not even"));
  EXPECT_THAT(read(R"(, "rope_theta": 5000.0)").status().ToString(), HasSubstr("rope_theta"));
  EXPECT_THAT(read(R"(, "rotary": false)").status().ToString(), HasSubstr("'rotary' is false"));
}

// Experts and Mamba layers are the defaults of transformers.
TEST(HuggingFaceConfig, AGraniteHybridIsDenseOnlyIfItSaysSo) {
  const auto error = [](const std::string& fields) {
    const std::string text = absl::StrReplaceAll(
        With(fields.c_str()), {{"\"llama\"", "\"granitemoehybrid\", \"mamba_d_state\": 128"}});
    return FromHuggingFaceConfig(text, "config.json").status().ToString();
  };
  const std::string dense = R"("num_local_experts": 0, "position_embedding_type": "rope")";
  EXPECT_EQ(error(dense + R"(, "layer_types": ["attention", "full_attention"])"), "OK");
  EXPECT_THAT(
      error(dense + R"(, "layer_types": ["attention", "mamba"])"),
      HasSubstr("'layer_types' is [\"attention\",\"mamba\"] but must be \"attention\" for each layer"));
  EXPECT_THAT(error(dense), HasSubstr("field 'layer_types' is absent"));
  const std::string layers = R"("layer_types": ["attention", "attention"])";
  EXPECT_THAT(error(layers), HasSubstr("field 'num_local_experts' is absent"));
  EXPECT_THAT(error(layers + R"(, "num_local_experts": 62)"),
              HasSubstr("field 'num_local_experts' is 62 but must be 0"));
  EXPECT_THAT(error(layers + R"(, "num_local_experts": 0, "position_embedding_type": "nope")"),
              HasSubstr("must be \"rope\""));
}

TEST(HuggingFaceConfig, AnOptThatNormalizesAfterwardsIsRefused) {
  const auto read = [](const char* fields) {
    return FromHuggingFaceConfig(
        absl::StrCat(R"({"model_type": "opt", "hidden_size": 64, "ffn_dim": 96, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "vocab_size": 100, )",
                     fields, "}"),
        "config.json");
  };
  const absl::StatusOr<Architecture> spec = read(R"("init_std": 0.01, "max_position_embeddings": 32)");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->learned_positions, 34);
  EXPECT_EQ(spec->init_std, 0.01);
  EXPECT_THAT(read(R"("do_layer_norm_before": false)").status().ToString(),
              HasSubstr("do_layer_norm_before"));
  EXPECT_THAT(read(R"("word_embed_proj_dim": 32)").status().ToString(), HasSubstr("word_embed_proj_dim"));
  EXPECT_THAT(read(R"("layer_norm_eps": 1e-6)").status().ToString(), HasSubstr("layer_norm_eps"));
  Architecture other = *spec;
  other.norm.eps = 1e-6;
  EXPECT_THAT(CheckTrainable(other).ToString(), HasSubstr("model.norm_eps"));
}

// One field says how many positions there are.
TEST(HuggingFaceConfig, PositionsOfGpt2AreStatedOnce) {
  constexpr char kGpt2[] =
      R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100$0})";
  const auto read = [&](const char* fields) {
    return FromHuggingFaceConfig(absl::Substitute(kGpt2, fields), "config.json");
  };
  EXPECT_EQ(read("")->learned_positions, 1024);
  EXPECT_EQ(read(R"(, "n_positions": 32)")->learned_positions, 32);
  EXPECT_THAT(read(R"(, "n_positions": 32, "max_position_embeddings": 64)").status().ToString(),
              HasSubstr("n_positions"));
}

// A value that the family's config.json cannot state could not be exported.
TEST(HuggingFaceConfig, WhatAFamilyCannotStateIsRefused) {
  const auto check = [](auto change) {
    Architecture spec = *FromHuggingFaceConfig(kMinimal, "config.json");
    change(spec);
    return std::string(CheckTrainable(spec).message());
  };
  EXPECT_THAT(check([](Architecture& s) { SetWindow(s, 8); }), HasSubstr("model.sliding_window"));
  EXPECT_THAT(check([](Architecture& s) { SetRopes(s, {true, false}); }), HasSubstr("model.layer_types"));
  EXPECT_THAT(check([](Architecture& s) { s.window_rope_theta = 10; }), HasSubstr("window_rope_theta"));
  EXPECT_THAT(check([](Architecture& s) { s.embedding_multiplier = 2; }), HasSubstr("embedding_multiplier"));
  EXPECT_THAT(check([](Architecture& s) { s.residual_multiplier = 2; }), HasSubstr("residual_multiplier"));
  EXPECT_THAT(check([](Architecture& s) { s.logit_multiplier = 2; }), HasSubstr("logit_multiplier"));
  EXPECT_THAT(check([](Architecture& s) { s.logit_softcap = 2; }), HasSubstr("logit_softcap"));
  EXPECT_THAT(check([](Architecture& s) { SetEach(s, &Attention::scale, 2); }), HasSubstr("attention_scale"));
  EXPECT_THAT(check([](Architecture& s) { SetEach(s, &Attention::softcap, 2); }),
              HasSubstr("attention_softcap"));
}

}  // namespace
}  // namespace trainctl::model
