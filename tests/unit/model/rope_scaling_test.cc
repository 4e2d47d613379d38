#include "model/rope_scaling.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace trainctl::model {
namespace {

// Powers of theta in fp32, and the frequencies that the functions in ROPE_INIT_FUNCTIONS of transformers
// 5.23.0 return for them, with PyTorch 2.11.0 on a CPU. Printed with nine digits, which state each bit.
struct Reference {
  const char* name;
  std::optional<RopeScaling> scaling;
  double theta;
  int64_t seq_len;
  std::vector<float> powers;
  std::vector<float> frequencies;
};

RopeScaling Phi() {
  return {.original_max_position = 4096,
          .kind = RopeScalingKind::kLongRope,
          .attention_factor = LongRopeAttentionFactor(32, 4096),
          .short_factor = {1.0, 1.05, 1.1, 1.2, 1.35, 1.5},
          .long_factor = {1.25, 2.0, 3.5, 8.0, 24.5, 60.2}};
}

std::vector<Reference> References() {
  return {
      {"Llama 3.1",
       RopeScaling{},
       500000,
       4096,
       {1, 5.1566925f, 26.5914803f, 137.124084f, 707.106812f, 3646.33228f, 18803.0156f, 96961.375f},
       {1, 0.193922758f, 0.0376060307f, 0.00729266508f, 0.000524846022f, 3.42810235e-05f, 6.64786967e-06f,
        1.28917316e-06f}},
      {"linear",
       RopeScaling{.factor = 8, .kind = RopeScalingKind::kLinear},
       10000,
       4096,
       {1, 3.1622777f, 10, 31.622776f, 100, 316.227753f, 1000, 3162.27759f},
       {0.125f, 0.0395284705f, 0.0125000002f, 0.00395284733f, 0.00124999997f, 0.000395284733f,
        0.000125000006f, 3.95284733e-05f}},
      {"YaRN",
       RopeScaling{.factor = 4, .original_max_position = 32768, .kind = RopeScalingKind::kYarn},
       1000000,
       4096,
       {1, 5.62341309f, 31.622776f, 177.827942f, 1000, 5623.41309f, 31622.7773f, 177827.938f},
       {1, 0.177827939f, 0.0316227786f, 0.00421755994f, 0.000500000024f, 4.44569851e-05f, 7.90569356e-06f,
        1.40585337e-06f}},
      {"YaRN of gpt-oss",
       RopeScaling{
           .factor = 32, .original_max_position = 4096, .kind = RopeScalingKind::kYarn, .truncate = false},
       150000,
       4096,
       {1, 4.436203f, 19.6798973f, 87.3040161f, 387.29834f, 1718.13403f, 7621.99121f, 33812.6992f},
       {1, 0.225418001f, 0.0508132726f, 0.00679495931f, 0.000456483918f, 1.8188337e-05f, 4.09997847e-06f,
        9.24208962e-07f}},
      {"YaRN of another factor",
       RopeScaling{.factor = 40, .original_max_position = 4096, .kind = RopeScalingKind::kYarn},
       10000,
       4096,
       {1, 3.1622777f, 10, 31.622776f, 100, 316.227753f, 1000, 3162.27759f},
       {1, 0.316227764f, 0.100000001f, 0.0239147246f, 0.00512499968f, 0.000849862176f, 2.49999994e-05f,
        7.90569447e-06f}},
      {"YaRN with an upper bound below the lower one",
       RopeScaling{.factor = 4, .original_max_position = 4, .kind = RopeScalingKind::kYarn},
       500,
       4096,
       {1, 4.72870827f, 22.3606796f, 105.737129f},
       {1, 0.05286856f, 0.0111803403f, 0.00236435398f}},
      {"LongRoPE, short",
       Phi(),
       10000,
       4096,
       {1, 4.64158916f, 21.5443497f, 100, 464.158966f, 2154.43433f},
       {1, 0.205184266f, 0.0421962552f, 0.00833333284f, 0.00159587723f, 0.000309439318f}},
      {"LongRoPE, long",
       Phi(),
       10000,
       4097,
       {1, 4.64158916f, 21.5443497f, 100, 464.158966f, 2154.43433f},
       {0.800000012f, 0.107721724f, 0.0132616796f, 0.00124999997f, 8.7936096e-05f, 7.71028226e-06f}},
  };
}

TEST(RopeScaling, FrequenciesAreThoseOfTransformers) {
  for (const Reference& reference : References()) {
    EXPECT_EQ(RopeFrequencies(reference.scaling, reference.theta, reference.powers, reference.seq_len),
              reference.frequencies)
        << reference.name;
  }
  EXPECT_EQ(RopeFrequencies(std::nullopt, 10000, std::vector<float>{1, 8}, 1),
            (std::vector<float>{1, 0.125}));
}

// The second value that the same functions return.
TEST(RopeScaling, AttentionFactorsAreThoseOfTransformers) {
  EXPECT_EQ(AttentionFactorOf(RopeScaling{}), 1);
  EXPECT_EQ(AttentionFactorOf({.factor = 8, .kind = RopeScalingKind::kLinear}), 1);
  RopeScaling yarn = {.factor = 4, .kind = RopeScalingKind::kYarn};
  EXPECT_DOUBLE_EQ(AttentionFactorOf(yarn), 1.138629436111989);
  yarn.factor = 32;
  EXPECT_DOUBLE_EQ(AttentionFactorOf(yarn), 1.3465735902799727);
  yarn.attention_factor = 0.75;
  EXPECT_EQ(AttentionFactorOf(yarn), 0.75);
  EXPECT_DOUBLE_EQ(AttentionFactorOf(Phi()), 1.1902380714238083);
  EXPECT_EQ(LongRopeAttentionFactor(0.5, 4096), 1);
}

// By transformers 5.23.0: its class of HunYuan, with a head size of 128.
TEST(RopeScaling, TheBaseOfNtkAlphaIsThatOfTransformers) {
  const RopeScaling scaling = {.kind = RopeScalingKind::kNtkAlpha, .alpha = 1000};
  EXPECT_DOUBLE_EQ(RopeBase(scaling, 10000, 128), 11158839.92507748);
  EXPECT_EQ(RopeBase(std::nullopt, 10000, 128), 10000);
  EXPECT_EQ(RopeBase(RopeScaling{}, 500000, 128), 500000);
}

TEST(RopeScaling, EveryKindIsFoundByItsName) {
  for (const char* name : {"llama3", "linear", "yarn", "longrope", "dynamic", "ntk_alpha"}) {
    ASSERT_TRUE(FindRopeScalingKind(name).has_value()) << name;
    EXPECT_STREQ(NameOf(*FindRopeScalingKind(name)), name);
  }
  EXPECT_FALSE(FindRopeScalingKind("proportional").has_value());
}

}  // namespace
}  // namespace trainctl::model
