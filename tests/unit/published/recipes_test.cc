#include "published/recipes.h"

#include <gtest/gtest.h>

namespace trainctl::published {
namespace {

TEST(Recipes, ModulesAreReadByName) {
  uint32_t modules = 0;
  EXPECT_TRUE(ParseRecomputeModules("mla_up_proj+mlp", modules));
  EXPECT_EQ(modules, uint32_t{frameworks::kLatentUp | frameworks::kPlainMlp});
  EXPECT_TRUE(ParseRecomputeModules("", modules));
  EXPECT_EQ(modules, 0u);
  EXPECT_FALSE(ParseRecomputeModules("moe_act+attention", modules));
}

TEST(Recipes, TheFirstThatFitsCounts) {
  const Recipe* const recipe = FindRecipe("DeepSeek-V3 671B-A37B", "gb200-186gb", "mxfp8", false, 0);
  ASSERT_NE(recipe, nullptr);
  EXPECT_EQ(recipe->modules, uint32_t{frameworks::kLatentUp});
  EXPECT_EQ(FindRecipe("DeepSeek-V3 671B-A37B", "gb200-186gb", "fp8", false, 0)->modules,
            uint32_t{frameworks::kPlainMlp});
  EXPECT_EQ(FindRecipe("Qwen3 30B-A3B", "h100-sxm-80gb", "bf16", false, 0), nullptr);
  EXPECT_EQ(FindRecipe("Llama3 70B", "gb200-186gb", "fp8", false, 0), nullptr);
  EXPECT_EQ(FindRecipe("Llama3 70B", "gb200-186gb", "fp8", true, 0)->offloaded_layers, 40);
  // Fine-tuning is another recipe than training.
  EXPECT_TRUE(FindRecipe("Llama3 70B SFT", "h100-sxm-80gb", "fp8", false, 0)->memory_of_first_step);
  EXPECT_EQ(FindRecipe("Llama3 70B", "h100-sxm-80gb", "fp8", false, 0), nullptr);
  // From 26.06 on the recipe of MXFP8 recomputes nothing.
  EXPECT_EQ(FindRecipe("DeepSeek-V3 671B-A37B", "gb300-279gb", "mxfp8", false, 260401)->modules,
            uint32_t{frameworks::kLatentUp});
  EXPECT_EQ(FindRecipe("DeepSeek-V3 671B-A37B", "gb300-279gb", "mxfp8", false, 260600)->recompute,
            frameworks::RecomputeKind::kNone);
}

}  // namespace
}  // namespace trainctl::published
