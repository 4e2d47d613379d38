#include "model/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iterator>
#include <set>

#include "base/status.h"
#include "model/families.h"
#include "model/parameters.h"
#include "model/presets.h"

namespace trainctl::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Architecture Tiny() {
  // head_dim is not hidden / heads.
  return LlamaOf({.layers = 2, .hidden = 8, .ffn = 10, .heads = 4, .kv_heads = 2, .head_dim = 6, .vocab = 7});
}

// Published by the models' authors (numbers of elements in the released safetensors files).
TEST(Architecture, PresetsHaveThePublishedParameterCounts) {
  const std::pair<const char*, int64_t> published[] = {
      {"llama-1b", 1'100'048'384},         // TinyLlama-1.1B
      {"llama2-7b", 6'738'415'616},        //
      {"llama2-13b", 13'015'864'320},      //
      {"llama2-70b", 68'976'648'192},      //
      {"llama3.2-1b", 1'235'814'400},      //
      {"llama3.2-3b", 3'212'749'824},      //
      {"llama3.1-8b", 8'030'261'248},      //
      {"llama3.1-70b", 70'553'706'496},    //
      {"llama3.1-405b", 405'853'388'800},  //
  };
  for (const auto& [name, count] : published) {
    const absl::StatusOr<Architecture> spec = Preset(name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(NumParameters(*spec), count) << name;
  }
}

TEST(Architecture, ToyPresetsAreAboutAsLargeAsTheirNamesSay) {
  const std::pair<const char*, double> nominal[] = {
      {"toy-1m", 1e6}, {"toy-5m", 5e6}, {"llama-25m", 25e6}, {"llama-120m", 120e6}};
  for (const auto& [name, count] : nominal) {
    EXPECT_NEAR(static_cast<double>(NumParameters(*Preset(name))), count, 0.06 * count) << name;
  }
}

TEST(Architecture, EveryPresetIsValidAndItsInventoryAddsUp) {
  int64_t previous = 0;
  for (const std::string& name : PresetNames()) {
    const absl::StatusOr<Architecture> spec = Preset(name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_TRUE(CheckTrainable(*spec).ok()) << name << ": " << CheckTrainable(*spec);
    int64_t total = 0;
    std::set<std::string> names;
    int block = 0;
    for (const Parameter& parameter : Inventory(*spec)) {
      int64_t numel = 1;
      for (int64_t extent : parameter.shape) numel *= extent;
      EXPECT_EQ(parameter.numel, numel) << parameter.name;
      EXPECT_GE(parameter.block, block) << parameter.name;
      block = parameter.block;
      EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name << " is listed twice";
      total += numel;
    }
    EXPECT_EQ(total, NumParameters(*spec)) << name;
    EXPECT_GE(total, previous) << "not sorted by size: " << name;
    previous = total;
  }
  EXPECT_EQ(PresetNames().front(), "toy-1m");
  EXPECT_EQ(PresetNames().back(), "llama3.1-405b");
}

// Biases and ties, which the presets do not have.
TEST(Architecture, TheClosedFormCountsWhatTheInventoryLists) {
  for (int bits = 0; bits < 16; ++bits) {
    Architecture spec = Tiny();
    SetEach(spec, &Attention::qkv_bias, (bits & 1) != 0);
    SetEach(spec, &Attention::out_bias, (bits & 2) != 0);
    SetEach(spec, &Mlp::bias, (bits & 4) != 0);
    spec.tie_embeddings = (bits & 8) != 0;
    int64_t total = 0;
    int64_t of_layer = 0;
    for (const Parameter& parameter : Inventory(spec)) {
      total += parameter.numel;
      if (parameter.block == 1) of_layer += parameter.numel;
    }
    EXPECT_EQ(NumParameters(spec), total) << bits;
    EXPECT_EQ(NumActiveParameters(spec), total) << bits;
    EXPECT_EQ(ParametersOfLayer(spec, 0).total(), of_layer) << bits;
  }
}

TEST(Architecture, MoreLayersContinueWhatRepeats) {
  Architecture mixture = Tiny();
  SetNumLayers(mixture, 5);
  SetExperts(mixture, Experts{.num_experts = 4, .top_k = 2, .ffn = 5}, /*dense_layers=*/2);
  EXPECT_THAT(mixture.layers, ElementsAre(0, 0, 1, 1, 1));
  SetNumLayers(mixture, 7);
  EXPECT_THAT(mixture.layers, ElementsAre(0, 0, 1, 1, 1, 1, 1));
  SetNumLayers(mixture, 2);
  EXPECT_EQ(NumDenseLayers(mixture), 2);
  EXPECT_NE(FindExperts(mixture), nullptr);  // it still describes them

  Architecture windows = Tiny();
  SetNumLayers(windows, 14);
  SetWindow(windows, 5, /*period=*/6);
  EXPECT_EQ(WindowShare(windows), 12.0 / 14);
  SetNumLayers(windows, 24);
  for (int64_t layer = 0; layer < 24; ++layer)
    EXPECT_EQ(LayerAt(windows, layer).attention.window, layer % 6 == 5 ? 0 : 5) << layer;
}

TEST(Architecture, LayersAreAsManyKindsAsDiffer) {
  Architecture spec = Tiny();
  SetNumLayers(spec, 6);
  const Architecture plain = spec;
  const Experts experts = {.num_experts = 4, .top_k = 2, .ffn = 5};
  SetExperts(spec, experts, /*dense_layers=*/3);
  SetWindow(spec, 5, /*period=*/2);
  EXPECT_EQ(spec.kinds.size(), 4U);
  EXPECT_THAT(spec.layers, ElementsAre(0, 1, 0, 2, 3, 2));
  SetEach(spec, &Attention::heads, 2);
  for (int64_t layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(LayerAt(spec, layer).attention.heads, 2);
    EXPECT_EQ(LayerAt(spec, layer).attention.window > 0, layer % 2 == 0);
    EXPECT_EQ(HasExperts(spec, layer), layer >= 3);
  }
  SetEach(spec, &Attention::heads, 4);
  const Architecture before = spec;
  SetWindow(spec, 5, /*period=*/2);
  EXPECT_EQ(spec, before);
  SetExperts(spec, std::nullopt);
  SetWindow(spec, 0);
  EXPECT_EQ(spec, plain);
}

TEST(Architecture, AnUnknownPresetNamesTheKnownOnes) {
  const absl::Status status = Preset("llama-9b").status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage);
  EXPECT_THAT(std::string(status.message()), HasSubstr("llama3.1-8b"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("llama-9b"));
}

TEST(Architecture, TheInventoryLiesInTheOrderOfTheFlatBuffers) {
  Architecture spec = Tiny();
  SetNumLayers(spec, 1);
  SetAllLinearBiases(spec, true);
  std::vector<std::string> names;
  std::vector<std::vector<int64_t>> shapes;
  for (const Parameter& parameter : Inventory(spec)) {
    names.push_back(parameter.name);
    shapes.push_back(parameter.shape);
  }
  const std::string layer = "model.layers.0.";
  EXPECT_THAT(names, ElementsAre("model.embed_tokens.weight", layer + "input_layernorm.weight",
                                 layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight",
                                 layer + "self_attn.v_proj.weight", layer + "self_attn.q_proj.bias",
                                 layer + "self_attn.k_proj.bias", layer + "self_attn.v_proj.bias",
                                 layer + "self_attn.o_proj.weight", layer + "self_attn.o_proj.bias",
                                 layer + "post_attention_layernorm.weight", layer + "mlp.gate_proj.weight",
                                 layer + "mlp.up_proj.weight", layer + "mlp.gate_proj.bias",
                                 layer + "mlp.up_proj.bias", layer + "mlp.down_proj.weight",
                                 layer + "mlp.down_proj.bias", "model.norm.weight", "lm_head.weight"));
  using Shape = std::vector<int64_t>;
  EXPECT_THAT(shapes,
              ElementsAre(Shape{7, 8}, Shape{8}, Shape{24, 8}, Shape{12, 8}, Shape{12, 8}, Shape{24},
                          Shape{12}, Shape{12}, Shape{8, 24}, Shape{8}, Shape{8}, Shape{10, 8}, Shape{10, 8},
                          Shape{10}, Shape{10}, Shape{8, 10}, Shape{8}, Shape{8}, Shape{7, 8}));
}

TEST(Architecture, TiedEmbeddingsAreOneEntryWithTwoUsers) {
  Architecture spec = Tiny();
  spec.tie_embeddings = true;
  const std::vector<Parameter> tied = Inventory(spec);
  EXPECT_EQ(tied.front().name, "model.embed_tokens.weight");
  EXPECT_THAT(tied.front().used_by, ElementsAre(0, 3));
  EXPECT_EQ(tied.back().name, "model.norm.weight");
  EXPECT_EQ(tied.back().block, HeadBlock(spec));
  spec.tie_embeddings = false;
  EXPECT_THAT(Inventory(spec).front().used_by, ElementsAre(0));
  EXPECT_EQ(Inventory(spec).size(), tied.size() + 1);
  EXPECT_EQ(NumBlocks(spec), 4);
}

TEST(Architecture, InitializationIsOnesForNormsZerosForBiases) {
  Architecture spec = Tiny();
  SetEach(spec, &Attention::qkv_bias, true);
  spec.init_std = 0.5;
  for (const Parameter& parameter : Inventory(spec)) {
    const bool norm = parameter.name.find("norm") != std::string::npos;
    const bool bias = parameter.name.find(".bias") != std::string::npos;
    const Init expected = norm ? Init::kOnes : bias ? Init::kZeros : Init::kNormal;
    EXPECT_EQ(parameter.init, expected) << parameter.name;
    if (expected == Init::kNormal) {
      EXPECT_EQ(parameter.init_std, 0.5) << parameter.name;
    }
  }
}

// 51.48 GFLOP per token is what NVIDIA publishes for Llama-3 8B at 8,192 tokens in its current
// convention (causal attention, no input embedding).
TEST(Architecture, FlopsPerTokenMatchThePublishedConvention) {
  EXPECT_NEAR(FlopsPerToken(*Preset("llama3.1-8b"), 8192) / 1e9, 51.48, 0.01);
}

TEST(Architecture, FlopsPerTokenOfATinyModelByHand) {
  // Per layer: q 24*8, k and v 12*8 each, o 8*24, three of 10*8 = 816; head 7*8 = 56.
  EXPECT_DOUBLE_EQ(FlopsPerToken(Tiny(), 5), 6.0 * (2 * 816 + 56) + 6.0 * 2 * 24 * 5);
  Architecture tied = Tiny();
  tied.tie_embeddings = true;  // the output product is still done
  EXPECT_DOUBLE_EQ(FlopsPerToken(tied, 5), FlopsPerToken(Tiny(), 5));
}

// A token meets two of four experts, the shared one and the router; latent keys are wider than values.
TEST(Architecture, FlopsPerTokenOfExpertsAndLatentAttentionByHand) {
  Architecture spec = Tiny();
  SetExperts(spec, Experts{.num_experts = 4, .top_k = 2, .ffn = 5, .shared_ffn = 3}, /*dense_layers=*/1);
  const double of_expert_layer = 576 + 3 * 8 * (2 * 5 + 3) + 4 * 8;  // attention, MLPs, router
  EXPECT_DOUBLE_EQ(FlopsPerToken(spec, 5), 6.0 * (816 + of_expert_layer + 56) + 6.0 * 2 * 24 * 5);
  SetEach(spec, &Attention::latent,
          LatentAttention{.key_value_rank = 3, .nope_dim = 4, .rope_dim = 2, .value_dim = 5});
  SetExperts(spec, std::nullopt);
  // Queries 8 * 24, down 8 * (3 + 2), up 3 * 4 * (4 + 5), out 4 * 5 * 8, MLP 240; scores of 6, values of 5.
  const double of_layer = 192 + 40 + 108 + 160 + 240;
  EXPECT_DOUBLE_EQ(FlopsPerToken(spec, 5), 6.0 * (2 * of_layer + 56) + 3.0 * 2 * 4 * (6 + 5) * 5);
}

TEST(Architecture, NamesAreFoundInAnySpelling) {
  EXPECT_EQ(*Preset("Llama 3.1 8B"), *Preset("llama3.1-8b"));
  EXPECT_EQ(*Preset("mixtral8x7b"), *Preset("mixtral-8x7b"));
  int64_t previous = 0;
  for (const NamedModel& model : NamedModels()) {
    EXPECT_TRUE(Validate(model.spec).ok()) << model.name << ": " << Validate(model.spec);
    EXPECT_NE(std::string(model.source), "") << model.name;
    EXPECT_GE(NumParameters(model.spec), previous) << "not sorted by size: " << model.name;
    previous = NumParameters(model.spec);
    EXPECT_EQ(WhyNotTrainable(model.spec).empty(), model.spec.family == "llama") << model.name;
  }
}

// What the trainer does not run is a model all the same.
TEST(Architecture, EveryFeatureThatIsMissingIsNamed) {
  EXPECT_TRUE(WhyNotTrainable(Tiny()).empty());
  const std::pair<const char*, std::function<void(Architecture&)>> features[] = {
      {"model.family = \"olmoe\"", [](Architecture& s) { s.family = "olmoe"; }},
      {"num_local_experts",
       [](Architecture& s) { SetExperts(s, Experts{.num_experts = 4, .top_k = 2, .ffn = 8}); }},
      {"kv_lora_rank",
       [](Architecture& s) { SetEach(s, &Attention::latent, LatentAttention{.key_value_rank = 8}); }},
      {"num_nextn_predict_layers", [](Architecture& s) { s.mtp_layers = 1; }},
      {"swiglu_limit", [](Architecture& s) { SetEach(s, &Mlp::clamped, true); }},
      {"attention sinks", [](Architecture& s) { SetEach(s, &Attention::sinks, true); }},
      {"after the embedding", [](Architecture& s) { s.embedding_norm = true; }},
      {"dropout", [](Architecture& s) { s.dropout = true; }},
      {"learned positions", [](Architecture& s) { s.learned_positions = 5; }},
  };
  Architecture all = Tiny();
  for (const auto& [word, add] : features) {
    Architecture spec = Tiny();
    add(spec);
    add(all);
    EXPECT_TRUE(Validate(spec).ok()) << word << ": " << Validate(spec);
    ASSERT_EQ(WhyNotTrainable(spec).size(), 1U) << word;
    EXPECT_EQ(ExitCodeFor(CheckTrainable(spec)), ExitCode::kUsage) << word;
    EXPECT_THAT(std::string(CheckTrainable(spec).message()), HasSubstr(word));
  }
  EXPECT_EQ(WhyNotTrainable(all).size(), std::size(features));
}

// A worker builds the model from its family and its sizes, so no other model may be trained under that name.
TEST(Architecture, WhatTheFamilyDoesNotHaveIsNotTrained) {
  const std::function<void(Architecture&)> changes[] = {
      [](Architecture& s) { SetEach(s, &Mlp::gated, false); },
      [](Architecture& s) { SetEach(s, &Attention::qk_norm, QkNorm::kHead); },
      [](Architecture& s) { SetEach(s, &Attention::qk_norm, QkNorm::kWhole); },
      [](Architecture& s) { s.norm.kind = NormKind::kLayer; },
      [](Architecture& s) { s.norm.gain = kernels::Gain::kOnePlusWeight; },
      [](Architecture& s) { s.rope.pairs = kernels::RopePairs::kNeighbors; },
      [](Architecture& s) { s.scales_embedding = true; },
      [](Architecture& s) { s.head_bias = true; },
      [](Architecture& s) { s.norm.bias = false; },
      [](Architecture& s) { SetEach(s, &Layer::norms, NormPlaces::kBeforeAndAfter); },
      [](Architecture& s) { SetEach(s, &Layer::norms, NormPlaces::kShared); },
  };
  for (const auto& change : changes) {
    Architecture spec = Tiny();
    change(spec);
    EXPECT_THAT(WhyNotTrainable(spec), testing::ElementsAre(HasSubstr("of the family llama do not have")));
  }
  // A config.json of Gemma 1 cannot state one, because versions of transformers differ in what they make of
  // it.
  for (const auto& [family, can] : {std::pair("llama", true), std::pair("gemma", false)}) {
    Architecture spec = Tiny();
    spec.family = family;
    ApplyFamily(*FindFamily(family), spec);
    EXPECT_TRUE(CheckTrainable(spec).ok()) << CheckTrainable(spec);
    SetEach(spec, &Mlp::activation, kernels::Activation::kRelu);
    EXPECT_EQ(CheckTrainable(spec).ok(), can);
    EXPECT_EQ(
        std::string(CheckTrainable(spec).message()),
        can ? "" : "model.activation = \"relu\" must be \"gelu_pytorch_tanh\" in models of the family gemma");
  }
  Architecture spec = Tiny();
  spec.hidden = 32;
  SetEach(spec, &Attention::head_dim, 8);
  spec.rope.share = 0.5;
  for (const char* family : {"llama", "qwen3"}) {  // their config.json cannot say it
    spec.family = family;
    ApplyFamily(*FindFamily(family), spec);
    EXPECT_THAT(std::string(CheckTrainable(spec).message()), HasSubstr("model.rope_share = 0.5 must be 1"));
  }
  spec.family = "stablelm";
  ApplyFamily(*FindFamily("stablelm"), spec);
  EXPECT_TRUE(CheckTrainable(spec).ok()) << CheckTrainable(spec);
  SetEach(spec, &Mlp::bias, true);
  EXPECT_THAT(std::string(CheckTrainable(spec).message()), HasSubstr("do not go together"));
  SetEach(spec, &Mlp::bias, false);
  SetEach(spec, &Attention::head_dim, 2 * AttentionOf(spec).head_dim);
  EXPECT_THAT(std::string(CheckTrainable(spec).message()), HasSubstr("must be model.hidden / model.heads"));
}

TEST(Architecture, SizesThatNoModelHasAreNamed) {
  Architecture spec = Tiny();
  SetEach(spec, &Attention::heads, 6);
  SetEach(spec, &Attention::kv_heads, 4);
  EXPECT_THAT(std::string(Validate(spec).message()),
              HasSubstr("model.heads = 6 is not a multiple of model.kv_heads = 4"));
  SetNumLayers(spec, 0);
  EXPECT_EQ(Validate(spec).message(), "model.layers = 0 is out of range: 1 to 16384");
  SetNumLayers(spec, 1 << 14);
  SetEach(spec, &Attention::heads, 4);
  SetExperts(spec, Experts{.num_experts = 1 << 16, .top_k = 2, .ffn = 1 << 20});
  spec.hidden = 1 << 20;
  EXPECT_EQ(Validate(spec).message(), "the model has more than 1e+18 parameters");
  SetExperts(spec, Experts{.num_experts = 1 << 16, .top_k = 0, .ffn = 1 << 20});
  EXPECT_EQ(Validate(spec).message(), "a token visits 0 of 65536 experts");
}

RopeScaling LongRope(const Architecture& spec, double divisor) {
  const std::vector<double> divisors(static_cast<size_t>(RotatedDim(spec) / 2), divisor);
  return {.kind = RopeScalingKind::kLongRope,
          .attention_factor = 1.5,
          .short_factor = divisors,
          .long_factor = divisors};
}

TEST(Architecture, ValidateNamesTheFieldThatIsWrong) {
  EXPECT_TRUE(CheckTrainable(Tiny()).ok()) << CheckTrainable(Tiny());
  const std::pair<const char*, std::function<void(Architecture&)>> mistakes[] = {
      {"model.family", [](Architecture& s) { s.family = "gpt"; }},
      {"model.layers", [](Architecture& s) { SetNumLayers(s, 0); }},
      {"model.layers", [](Architecture& s) { SetNumLayers(s, int64_t{1} << 40); }},
      {"model.hidden", [](Architecture& s) { s.hidden = -8; }},
      {"model.heads", [](Architecture& s) { SetEach(s, &Attention::heads, 3); }},
      {"model.kv_heads", [](Architecture& s) { SetEach(s, &Attention::kv_heads, 0); }},
      {"model.kv_heads", [](Architecture& s) { SetEach(s, &Attention::kv_heads, 8); }},
      {"model.head_dim", [](Architecture& s) { SetEach(s, &Attention::head_dim, 7); }},
      {"model.head_dim",
       [](Architecture& s) {
         SetEach(s, &Attention::heads, 1 << 14), SetEach(s, &Attention::head_dim, 1 << 12);
       }},
      {"model.ffn", [](Architecture& s) { SetEach(s, &Mlp::ffn, 0); }},
      {"model.vocab", [](Architecture& s) { s.vocab = INT64_MAX; }},
      {"model.max_position", [](Architecture& s) { s.max_position = 0; }},
      {"model.norm_eps", [](Architecture& s) { s.norm.eps = 0; }},
      {"model.norm_eps", [](Architecture& s) { s.norm.eps = std::nan(""); }},
      {"model.rope_theta", [](Architecture& s) { s.rope.theta = -1; }},
      {"model.init_std", [](Architecture& s) { s.init_std = -0.1; }},
      {"rope_scaling.factor", [](Architecture& s) { s.rope.scaling = RopeScaling{.factor = 0.5}; }},
      {"low_freq_factor", [](Architecture& s) { s.rope.scaling = RopeScaling{.low_freq_factor = 4.0}; }},
      {"original_max_position",
       [](Architecture& s) { s.rope.scaling = RopeScaling{.original_max_position = 0}; }},
      {"0 < beta_slow < beta_fast",
       [](Architecture& s) {
         s.rope.scaling = RopeScaling{.kind = RopeScalingKind::kYarn, .beta_slow = 32};
       }},
      {"rope_scaling.attention_factor",
       [](Architecture& s) {
         s.rope.scaling = RopeScaling{.kind = RopeScalingKind::kYarn, .attention_factor = -1};
       }},
      {"rope_theta",
       [](Architecture& s) {
         s.rope.theta = 1;
         s.rope.scaling = RopeScaling{.kind = RopeScalingKind::kYarn};
       }},
      {"rope_scaling.attention_factor is missing",
       [](Architecture& s) { s.rope.scaling = LongRope(s, 1.5), s.rope.scaling->attention_factor = 0; }},
      {"rope_scaling.short_factor has 4 numbers",
       [](Architecture& s) {
         s.rope.scaling = LongRope(s, 1.5), s.rope.scaling->short_factor = {1, 2, 3, 4};
       }},
      {"rope_scaling.long_factor contains 0",
       [](Architecture& s) { s.rope.scaling = LongRope(s, 1.5), s.rope.scaling->long_factor[1] = 0; }},
      {"model.attention_out_bias", [](Architecture& s) { SetEach(s, &Attention::out_bias, true); }},
      {"model.qkv_bias",
       [](Architecture& s) { SetEach(s, &Attention::qkv_bias, true), SetEach(s, &Mlp::bias, true); }},
  };
  for (const auto& [field, spoil] : mistakes) {
    Architecture spec = Tiny();
    spoil(spec);
    const absl::Status status = CheckTrainable(spec);
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  }
}

}  // namespace
}  // namespace trainctl::model
