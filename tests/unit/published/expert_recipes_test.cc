#include "published/expert_recipes.h"

#include <gtest/gtest.h>

#include "tests/unit/frameworks/time_job.h"

namespace trainctl::published {
namespace {

frameworks::Workload MoeOn(const char* device) {
  frameworks::Workload w = frameworks::SmallJob("megatron-bridge", device);
  w.model.experts = model::Experts{.num_experts = 128, .top_k = 8, .ffn = 768};
  return w;
}

TEST(ExpertRecipes, AReleaseDecidesHowTokensTravel) {
  // Qwen3 30B on H100: all-to-all beside another micro-batch until 25.11, DeepEP so in 26.02, HybridEP
  // without overlap from 26.04 on.
  frameworks::Workload w = MoeOn("h100-sxm-80gb");
  EXPECT_TRUE(ApplyExpertRecipe("Qwen3 30B-A3B", "25.11 NeMo Container; Pre-Training Performance", w));
  EXPECT_EQ(w.expert_dispatch, frameworks::ExpertDispatch::kAllToAll);
  EXPECT_TRUE(w.overlap_experts);
  EXPECT_TRUE(ApplyExpertRecipe("Qwen3 30B-A3B", "26.02.01 NeMo Container", w));
  EXPECT_EQ(w.expert_dispatch, frameworks::ExpertDispatch::kNodeAware);
  EXPECT_TRUE(w.overlap_experts);
  EXPECT_TRUE(ApplyExpertRecipe("Qwen3 30B-A3B", "x; 26.04 NeMo Container", w));
  EXPECT_EQ(w.expert_dispatch, frameworks::ExpertDispatch::kNodeAware);
  EXPECT_FALSE(w.overlap_experts);
}

TEST(ExpertRecipes, FullIterationGraphsOfMxfp8ComeWithOverlap) {
  frameworks::Workload w = MoeOn("gb200-186gb");
  w.precision = frameworks::Precision::kMxfp8;
  EXPECT_TRUE(ApplyExpertRecipe("DeepSeek-V3 671B-A37B", "26.04 NeMo Container", w));
  EXPECT_FALSE(w.overlap_experts);
  EXPECT_TRUE(ApplyExpertRecipe("DeepSeek-V3 671B-A37B", "26.06 NeMo Container", w));
  EXPECT_TRUE(w.overlap_experts);
  EXPECT_FALSE(w.fp8_attention);  // on GB300 alone
  EXPECT_TRUE(ApplyExpertRecipe("Qwen3 30B-A3B", "26.06 NeMo Container", w));
  EXPECT_TRUE(w.fp8_attention);
  w.precision = frameworks::Precision::kBf16;
  EXPECT_TRUE(ApplyExpertRecipe("DeepSeek-V3 671B-A37B", "26.06 NeMo Container", w));
  EXPECT_FALSE(w.overlap_experts);
}

TEST(ExpertRecipes, APipelineOverlapsWithSeveralStagesOfARankAlone) {
  frameworks::Workload w = MoeOn("b200-180gb");
  w.precision = frameworks::Precision::kMxfp8;
  w.mesh.pp = 16;
  EXPECT_TRUE(ApplyExpertRecipe("DeepSeek-V3 671B-A37B", "26.04.01 NeMo Container", w));
  EXPECT_FALSE(w.overlap_experts);
  w.mesh.pp = 8;
  w.virtual_stages = 2;
  EXPECT_TRUE(ApplyExpertRecipe("DeepSeek-V3 671B-A37B", "26.04.01 NeMo Container", w));
  EXPECT_TRUE(w.overlap_experts);
  EXPECT_FALSE(w.fused_experts);
}

TEST(ExpertRecipes, FusedExpertsOfGptOssHadRegressedInOnePatch) {
  frameworks::Workload w = MoeOn("gb200-186gb");
  w.precision = frameworks::Precision::kMxfp8;
  for (const auto& [notes, fused] : {std::pair{"26.06 NeMo Container", true},
                                     {"26.06.01 NeMo Container", false},
                                     {"26.08 NeMo Container", true}}) {
    EXPECT_TRUE(ApplyExpertRecipe("gpt-oss-120b", notes, w));
    EXPECT_EQ(w.fused_experts, fused) << notes;
    EXPECT_TRUE(w.overlap_experts) << notes;
  }
}

TEST(ExpertRecipes, ReleasesAreRead) {
  EXPECT_EQ(ReleaseIn("26.04.01 NeMo Container; x"), 260401);
  EXPECT_EQ(ReleaseIn("x; 25.11 NeMo Container"), 251100);
  EXPECT_EQ(ReleaseIn("NeMo Container"), 0);
}

TEST(ExpertRecipes, NothingIsAssumedWithoutAReleaseOrExperts) {
  frameworks::Workload w = MoeOn("h100-sxm-80gb");
  w.overlap_experts = true;
  for (const char* notes :
       {"", " NeMo Container", "NeMo Container", "latest NeMo Container", "26 NeMo Container"}) {
    EXPECT_FALSE(ApplyExpertRecipe("Qwen3 30B-A3B", notes, w)) << notes;
  }
  EXPECT_FALSE(ApplyExpertRecipe("Mixtral 8x7B", "26.04 NeMo Container", w));
  w.model.experts.reset();
  EXPECT_FALSE(ApplyExpertRecipe("Qwen3 30B-A3B", "26.04 NeMo Container", w));
  EXPECT_TRUE(w.overlap_experts);
}

}  // namespace
}  // namespace trainctl::published
