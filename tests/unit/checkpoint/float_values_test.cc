#include "checkpoint/float_values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace trainctl::checkpoint {
namespace {

// Converts elements that are stored at an unaligned address.
template <typename Bits>
std::vector<float> FloatsOf(DType dtype, const std::vector<Bits>& elements) {
  std::vector<std::byte> bytes(1 + elements.size() * sizeof(Bits));
  std::memcpy(bytes.data() + 1, elements.data(), elements.size() * sizeof(Bits));
  std::vector<float> values(elements.size());
  ConvertToFloat(dtype, absl::MakeConstSpan(bytes).subspan(1), absl::MakeSpan(values));
  return values;
}

TEST(FloatValues, EveryF16IsExact) {
  std::vector<uint16_t> all;
  for (int bits = 0; bits < 1 << 16; ++bits) all.push_back(static_cast<uint16_t>(bits));
  const std::vector<float> values = FloatsOf(DType::kF16, all);
  for (const uint16_t bits : all) {
    const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    const float value = values[bits];
    ASSERT_EQ(std::signbit(value), bits >> 15 != 0) << bits;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(value), mantissa != 0) << bits;
      ASSERT_EQ(std::isinf(value), mantissa == 0) << bits;
    } else {
      const double expected =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(std::abs(value), expected) << bits;
    }
  }
}

TEST(FloatValues, Bf16AndF32KeepTheirBits) {
  EXPECT_EQ(FloatsOf(DType::kBF16, std::vector<uint16_t>{0x3fc0, 0xc000}), (std::vector<float>{1.5F, -2}));
  EXPECT_EQ(FloatsOf(DType::kF32, std::vector<uint32_t>{0x3fc00001, 0}),
            (std::vector<float>{std::bit_cast<float>(0x3fc00001), 0}));
  ConvertToFloat(DType::kF32, {}, {});
}

}  // namespace
}  // namespace trainctl::checkpoint
