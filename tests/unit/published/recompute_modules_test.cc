#include "published/recompute_modules.h"

#include <gtest/gtest.h>

#include "frameworks/workload.h"

namespace trainctl::published {
namespace {

TEST(RecomputeModules, AreReadByName) {
  uint32_t modules = 0;
  EXPECT_TRUE(ParseRecomputeModules("mla_up_proj+mlp", modules));
  EXPECT_EQ(modules, uint32_t{frameworks::kLatentUp | frameworks::kPlainMlp});
  EXPECT_TRUE(ParseRecomputeModules("", modules));
  EXPECT_EQ(modules, 0u);
  EXPECT_FALSE(ParseRecomputeModules("moe_act+attention", modules));
}

}  // namespace
}  // namespace trainctl::published
