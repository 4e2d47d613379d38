#include "pricing/architecture.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pricing/known_models.h"

namespace trainctl::pricing {
namespace {

// What the trainer's own inventory counts, tensor by tensor.
TEST(Architecture, AgreesWithTheInventoryOfEveryPreset) {
  for (const std::string& name : model::PresetNames()) {
    const auto spec = model::Preset(name);
    ASSERT_TRUE(spec.ok());
    EXPECT_EQ(NumParameters(FromModelSpec(*spec)), model::NumParameters(*spec)) << name;
  }
}

// Totals and active parameters as their authors print them, in billions.
TEST(Architecture, PublishedSizesComeOut) {
  const struct {
    const char* name;
    double total, active;
  } kPublished[] = {{"DeepSeek-V3 671B", 671, 37}, {"Mixtral 8x22B", 141, 39},   {"Mixtral-8x7B", 46.7, 12.9},
                    {"Qwen3-30B-A3B", 30.5, 3.3},  {"Qwen3-235B-A22B", 235, 22}, {"gpt-oss-120b", 116.8, 5.1},
                    {"gpt-oss-20b", 20.9, 3.6},    {"Kimi-K2 1T", 1026, 32},     {"Moonlight 16B-A3B", 16, 3},
                    {"GPT3-175B", 175, 175}};
  for (const auto& published : kPublished) {
    const KnownModel* known = FindKnownModel(published.name);
    ASSERT_NE(known, nullptr) << published.name;
    Architecture a = known->architecture;
    ApplyFamily(published.name, 2048, a);
    ASSERT_TRUE(Validate(a).ok()) << published.name << ": " << Validate(a);
    EXPECT_NEAR(static_cast<double>(NumParameters(a)) / 1e9 / published.total, 1, 0.02) << published.name;
    // The authors leave out now the embedding, now more; a factor would still show.
    EXPECT_NEAR(static_cast<double>(NumActiveParameters(a)) / 1e9 / published.active, 1, 0.2)
        << published.name;
  }
}

// llm-foundry prints its models' sizes with the table of positions of each length.
TEST(Architecture, TablesOfPositionsCount) {
  Architecture a = {.layers = 40,
                    .hidden = 5120,
                    .ffn = 20480,
                    .heads = 40,
                    .kv_heads = 40,
                    .head_dim = 128,
                    .vocab = 50368};
  EXPECT_EQ(ApplyFamily("MPT-13b", 16384, a), "mpt");
  EXPECT_NEAR(static_cast<double>(NumParameters(a)) / 1e9, 12.9274, 0.005);
  ApplyFamily("MPT-13b", 2048, a);
  EXPECT_EQ(NumParameters(a), 12'853'954'560);  // as printed: every linear layer has a bias
}

TEST(Architecture, ContradictionsAreNamed) {
  Architecture a = {
      .layers = 2, .hidden = 64, .ffn = 128, .heads = 6, .kv_heads = 4, .head_dim = 16, .vocab = 100};
  EXPECT_EQ(Validate(a).message(), "heads (6) is not a multiple of kv_heads (4)");
  a.layers = 0;
  EXPECT_EQ(Validate(a).message(), "layers is 0; it is between 1 and 100000");
  a.layers = 100'000;
  a.heads = 4;
  a.experts = Experts{.count = 1 << 16, .top_k = 2, .ffn = 1 << 20};
  a.hidden = 1 << 20;
  EXPECT_EQ(Validate(a).message(), "the model has more than 1e+18 parameters");
}

}  // namespace
}  // namespace trainctl::pricing
