#include "published/known_models.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/parameters.h"

namespace trainctl::published {
namespace {

// Totals and active parameters as their authors print them, in billions.
TEST(KnownModels, PublishedSizesComeOut) {
  const struct {
    const char* name;
    double total, active;
  } kPublished[] = {{"DeepSeek-V3 671B", 671, 37}, {"Mixtral 8x22B", 141, 39},   {"Mixtral-8x7B", 46.7, 12.9},
                    {"Qwen3-30B-A3B", 30.5, 3.3},  {"Qwen3-235B-A22B", 235, 22}, {"gpt-oss-120b", 116.8, 5.1},
                    {"gpt-oss-20b", 20.9, 3.6},    {"Kimi-K2 1T", 1026, 32},     {"Moonlight 16B-A3B", 16, 3},
                    {"GPT3-175B", 175, 175}};
  for (const auto& published : kPublished) {
    const model::NamedModel* known = FindKnownModel(published.name);
    ASSERT_NE(known, nullptr) << published.name;
    model::Architecture a = known->spec;
    ApplyFamily(published.name, 2048, a);
    ASSERT_TRUE(Validate(a).ok()) << published.name << ": " << Validate(a);
    EXPECT_NEAR(static_cast<double>(NumParameters(a)) / 1e9 / published.total, 1, 0.02) << published.name;
    // The authors leave out now the embedding, now more; a factor would still show.
    EXPECT_NEAR(static_cast<double>(NumActiveParameters(a)) / 1e9 / published.active, 1, 0.2)
        << published.name;
  }
}

// A row says all of its model, so that a name in a recipe and in a table mean the same.
TEST(KnownModels, FamiliesAddNothingToARow) {
  for (const model::NamedModel& named : model::NamedModels()) {
    model::Architecture spec = named.spec;
    ApplyFamily(named.name, spec.learned_positions, spec);
    EXPECT_EQ(spec, named.spec) << named.name;
    const model::NamedModel* found = FindKnownModel(named.name);
    EXPECT_EQ(found, spec.family == "llama" ? nullptr : &named) << named.name;
  }
}

// llm-foundry prints its models' sizes with the table of positions of each length.
TEST(KnownModels, TablesOfPositionsCount) {
  model::Architecture a = model::LlamaOf({.layers = 40,
                                          .hidden = 5120,
                                          .ffn = 20480,
                                          .heads = 40,
                                          .kv_heads = 40,
                                          .head_dim = 128,
                                          .vocab = 50368});
  ApplyFamily("MPT-13b", 16384, a);
  EXPECT_EQ(a.family, "mpt");
  EXPECT_NEAR(static_cast<double>(NumParameters(a)) / 1e9, 12.9274, 0.005);
  ApplyFamily("MPT-13b", 2048, a);
  EXPECT_EQ(NumParameters(a), 12'853'954'560);  // as printed: every linear layer has a bias
}

}  // namespace
}  // namespace trainctl::published
