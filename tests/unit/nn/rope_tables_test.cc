#include "nn/rope_tables.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "device/aten.h"
#include "gtest/gtest.h"
#include "model/graph.h"

namespace trainctl::nn {
namespace {

// The bits of LlamaRotaryEmbedding(config).inv_freq, by transformers 4.57.6 with PyTorch 2.11.0 on a CPU:
// rope_theta 500,000, head_dim 128 and the scaling of Llama 3.1 (factor 8, 1 and 4, 8,192 positions).
constexpr uint32_t kLlama31[] = {
    0x3f800000, 0x3f508ac1, 0x3f29e1c6, 0x3f0a6384, 0x3ee177bc, 0x3eb7ab7d, 0x3e959ee3, 0x3e73c461,
    0x3e4693b0, 0x3e21c3a0, 0x3e03c6a0, 0x3dd6b19c, 0x3daee4ad, 0x3d8e7898, 0x3d681e67, 0x3d3d1684,
    0x3d1a08c8, 0x3cfaf53f, 0x3ccc6f49, 0x3ca68939, 0x3c87a9c3, 0x3c5d06ec, 0x3c340d6d, 0x3c12ac7f,
    0x3beef74f, 0x3bc2aa76, 0x3b9e9402, 0x3b812e35, 0x3b527720, 0x3b0dfd06, 0x3ab3d11d, 0x3a60979e,
    0x3a0995d2, 0x39a3f108, 0x393b2dd2, 0x38c86886, 0x38a3418d, 0x3884fdbf, 0x3858ac81, 0x38308199,
    0x380fc8f8, 0x37ea426f, 0x37bed4f4, 0x379b7475, 0x377d45c3, 0x374e51f5, 0x3728126b, 0x3708ea0f,
    0x36df10c4, 0x36b5b687, 0x369406cb, 0x36712b80, 0x36447610, 0x36200a69, 0x36025f34, 0x35d46808,
    0x35ad07a7, 0x358cf400, 0x3565a54d, 0x353b12c7, 0x351864a7, 0x34f848c2, 0x34ca41b0, 0x34a4c2ff};
// rope_theta 10,000, head_dim 64, no scaling.
constexpr uint32_t kLlama2[] = {
    0x3f800000, 0x3f3ff911, 0x3f0ff59a, 0x3ed7e89b, 0x3ea1e89b, 0x3e72d423, 0x3e361887, 0x3e088d77,
    0x3dcccccd, 0x3d99940d, 0x3d6655c2, 0x3d2cba15, 0x3d0186e3, 0x3cc2434f, 0x3c91ad39, 0x3c5a7bf2,
    0x3c23d70a, 0x3bf5b9b0, 0x3bb8449c, 0x3b8a2e77, 0x3b4f3e38, 0x3b1b690d, 0x3ae91528, 0x3aaec98e,
    0x3a83126f, 0x3a44948c, 0x3a136a16, 0x39dd1725, 0x39a5cb60, 0x3978a815, 0x393a7753, 0x390bd472};

// Angles are products in fp32; that their cosines are right to the last bit or two is all that is asked.
void ExpectAnglesOf(const std::vector<float>& frequencies, const RopeTables& tables, int64_t position) {
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const double angle = static_cast<float>(position) * frequencies[j];
    const int64_t column = static_cast<int64_t>(j);
    EXPECT_NEAR(tables.cos[position][column].item<float>(), std::cos(angle), 1.2e-7) << position << " " << j;
    EXPECT_NEAR(tables.sin[position][column].item<float>(), std::sin(angle), 1.2e-7) << position << " " << j;
  }
}

template <size_t n>
std::vector<float> Floats(const uint32_t (&bits)[n]) {
  std::vector<float> values;
  for (const uint32_t value : bits) values.push_back(std::bit_cast<float>(value));
  return values;
}

TEST(RopeTables, AnglesAreThoseOfTransformers) {
  model::AngleTable table = {.rotated_dim = 64, .theta = 10000};
  RopeTables tables = MakeRopeTables(device::Device::Cpu(), table, 4096);
  for (const int64_t position : {0, 1, 4095}) ExpectAnglesOf(Floats(kLlama2), tables, position);

  table = {.rotated_dim = 128, .theta = 500000, .scaling = model::RopeScaling{}};
  tables = MakeRopeTables(device::Device::Cpu(), table, 131072);
  // Where a frequency that differs in its last bit turns by 0.008 rad.
  for (const int64_t position : {1, 8192, 131071}) ExpectAnglesOf(Floats(kLlama31), tables, position);
}

// The length of the sequences decides which frequencies LongRoPE uses, and the attention factor multiplies
// both tables.
TEST(RopeTables, LongRopeHasFrequenciesByLength) {
  const model::AngleTable table = {.rotated_dim = 4,
                                   .theta = 10000,
                                   .scaling = model::RopeScaling{.original_max_position = 8,
                                                                 .kind = model::RopeScalingKind::kLongRope,
                                                                 .attention_factor = 1.25,
                                                                 .short_factor = {1, 2},
                                                                 .long_factor = {4, 5}}};
  for (const int64_t seq_len : {8, 9}) {
    const RopeTables tables = MakeRopeTables(device::Device::Cpu(), table, seq_len);
    const std::vector<double> frequencies =
        seq_len == 8 ? std::vector<double>{1, 0.01 / 2} : std::vector<double>{1.0 / 4, 0.01 / 5};
    for (int64_t pair = 0; pair < 2; ++pair) {
      const double angle = 7 * frequencies[static_cast<size_t>(pair)];
      EXPECT_NEAR(tables.cos[7][pair].item<float>(), 1.25 * std::cos(angle), 1e-6) << seq_len;
      EXPECT_NEAR(tables.sin[7][pair].item<float>(), 1.25 * std::sin(angle), 1e-6) << seq_len;
    }
  }
}

}  // namespace
}  // namespace trainctl::nn
