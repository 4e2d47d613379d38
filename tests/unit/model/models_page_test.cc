#include "model/models_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/files.h"
#include "model/families.h"
#include "model/family_features.h"

namespace trainctl::model {
namespace {

std::string DifferencesOf(const char* model_type) { return Differences(FeaturesOf(*FindFamily(model_type))); }

TEST(ModelsPage, TheFileInTheTreeIsTheOutput) {
  const absl::StatusOr<std::string> page = ReadFile(TRAINCTL_SOURCE_DIR "/docs/reference/models.md");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_TRUE(*page == ModelsPage()) << "run: trainctl models --markdown > docs/reference/models.md";
}

TEST(FamilyFeatures, EveryFamilyNamesItsModels) {
  for (const Family& family : Families()) {
    ASSERT_NE(family.models, nullptr) << family.model_type;
    EXPECT_STRNE(family.models, "") << family.model_type;
  }
}

TEST(FamilyFeatures, DescribeWhatTheTableSays) {
  EXPECT_EQ(DifferencesOf("llama"), "optional biases");
  EXPECT_EQ(DifferencesOf("mistral"), "windows in all layers");
  EXPECT_EQ(DifferencesOf("qwen3"),
            "norms of queries and keys; optional windows in the upper layers; optional biases of "
            "attention");
  EXPECT_EQ(
      DifferencesOf("gpt_neox"),
      "LayerNorm, attention and MLP in parallel; RoPE on 25 % of each head; GELU without a gate; biases of "
      "all projections; fused queries, keys and values");
  EXPECT_EQ(
      DifferencesOf("gpt2"),
      "LayerNorm; learned positions; tanh GELU without a gate; biases of all projections; fused queries, "
      "keys and values, transposed weights");
  EXPECT_EQ(DifferencesOf("gptj"),
            "LayerNorm, attention and MLP in parallel after one norm; RoPE of adjacent pairs on 25 % of each "
            "head; tanh GELU without a gate; biases of the MLP and of the head");
  EXPECT_EQ(DifferencesOf("granitemoehybrid"),
            "optional biases of attention; fused gate and up; factors of embedding, scores, residuals and "
            "logits");
  EXPECT_EQ(
      DifferencesOf("cohere2"),
      "LayerNorm without bias, attention and MLP in parallel after one norm; RoPE of adjacent pairs, no "
      "positions in layers without a window; windows in all but every 4th layer; optional biases of "
      "attention; a factor of the logits");
}

}  // namespace
}  // namespace trainctl::model
