#include "checkpoint/float_values.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/status.h"

namespace trainctl::checkpoint {
namespace {

float FloatOfBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float FloatOfF16(uint16_t bits) {
  const uint32_t sign = (uint32_t{bits} >> 15) << 31;
  const uint32_t magnitude = bits & 0x7fff;
  // The exponent's bias is 127 in fp32 and 15 in fp16. The difference is added twice for infinity and NaN,
  // because all bits of their exponent must be set.
  constexpr uint32_t kBias = uint32_t{127 - 15} << 23;
  float value = std::bit_cast<float>((magnitude << 13) + (magnitude < 0x7c00 ? kBias : 2 * kBias));
  if (magnitude < 0x400) value = static_cast<float>(magnitude) * 0x1p-24F;  // subnormal, or 0
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

template <float (*kConvert)(uint16_t)>
void ConvertEach(absl::Span<const std::byte> bytes, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    values[i] = kConvert(bits);
  }
}

}  // namespace

void ConvertToFloat(DType dtype, absl::Span<const std::byte> bytes, absl::Span<float> values) {
  TRAINCTL_CHECK(bytes.size() == values.size() * static_cast<size_t>(DTypeBytes(dtype)));
  switch (dtype) {
    case DType::kF32:
      if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
      return;
    case DType::kBF16:
      return ConvertEach<FloatOfBf16>(bytes, values);
    case DType::kF16:
      return ConvertEach<FloatOfF16>(bytes, values);
    default:
      TRAINCTL_CHECK(false);
  }
}

}  // namespace trainctl::checkpoint
