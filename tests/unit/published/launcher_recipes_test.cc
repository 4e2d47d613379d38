#include "published/launcher_recipes.h"

#include <gtest/gtest.h>

#include "cluster/catalogue.h"
#include "frameworks/framework.h"
#include "frameworks/price_memory.h"
#include "model/model_spec.h"

namespace trainctl::published {
namespace {

frameworks::Workload Job() {
  frameworks::Workload w;
  w.model = *model::Preset("llama2-70b");
  w.seq_len = 4096;
  w.global_batch = 32;
  w.precision = frameworks::Precision::kFp8;
  w.framework = frameworks::FindFramework("megatron-core");
  w.device = cluster::FindDevice("H100-80GB")->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
  w.mesh = {.pp = 4, .tp = 4};
  w.zero_stage = 1;
  return w;
}

// On 16 H100 without data parallelism: FP8 weights and their transposed copies 2 bytes, bf16 gradients 2,
// bf16 master copy and moments 6, of 20 layers / 4 of 855,638,016 weights each and 8,192 x 32,256 / 4 of a
// table. It ran there; with the 18 bytes of Megatron Core it would not have fitted.
TEST(LauncherRecipes, FineTuningHasItsStatesInHalfPrecision) {
  frameworks::Workload w = Job();
  EXPECT_GT(frameworks::PriceMemory(w).needed_bytes, w.device->memory_bytes.value);
  EXPECT_EQ(ApplyLauncherRecipe("LLAMA2-70B", "NeMo FW Launcher; SFT", false, w),
            "examples/peft/llama/h100/70b_2node.sh");
  EXPECT_EQ(w.virtual_stages, 20);
  const double states = (20 / 4 * 855'638'016.0 + 8192.0 * 32256 / 4) * (2 + 2 + 6);
  const frameworks::MemoryPrice price = frameworks::PriceMemoryOfRank(w, 0);
  const frameworks::MemoryPrice::Moment& step = price.At(frameworks::MemoryMoment::kStep);
  const double priced = price.parts[static_cast<size_t>(frameworks::MemoryPart::kParameters)] +
                        price.parts[static_cast<size_t>(frameworks::MemoryPart::kOptimizer)] + step.gradients;
  EXPECT_NEAR(priced / states, 1, 1e-3);
  EXPECT_LT(frameworks::PriceMemory(w).needed_bytes, w.device->memory_bytes.value);
}

TEST(LauncherRecipes, TrainingKeepsTheLowerHalvesOfTheMasterCopy) {
  frameworks::Workload w = Job();
  EXPECT_NE(ApplyLauncherRecipe("LLAMA2-70B", "NeMo FW Launcher; pretrain", false, w), "");
  EXPECT_DOUBLE_EQ(w.OptimizerBytes(), 2 + 4 + 4);
  EXPECT_DOUBLE_EQ(w.GradientBytes(), 2);
  EXPECT_DOUBLE_EQ(w.ExchangedGradientBytes(), 2);
  EXPECT_FALSE(w.weights_in_fp8);
}

TEST(LauncherRecipes, WhatARowStatesOrCannotHaveIsLeft) {
  frameworks::Workload stated = Job();
  ApplyLauncherRecipe("LLAMA2-70B", "SFT", /*states_virtual_stages=*/true, stated);
  EXPECT_EQ(stated.virtual_stages, 1);
  frameworks::Workload odd = Job();
  odd.model.layers = 78;  // 20 chunks on each of four ranks are not to be had
  ApplyLauncherRecipe("LLAMA2-70B", "SFT", false, odd);
  EXPECT_EQ(odd.virtual_stages, 1);
  frameworks::Workload other = Job();
  EXPECT_EQ(ApplyLauncherRecipe("Falcon-40B", "SFT", false, other), "");
  EXPECT_TRUE(other == Job());
}

}  // namespace
}  // namespace trainctl::published
