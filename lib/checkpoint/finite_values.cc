#include "checkpoint/finite_values.h"

#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace trainctl::checkpoint {
namespace {

// NaN and the infinities have all bits of the exponent set, and nothing else has: adding the exponent's
// lowest bit to it carries into the sign, which was masked out, and no further. So eight bytes are tried at
// once.
template <typename Bits>
bool NoneHasAll(Bits exponent, absl::Span<const std::byte> bytes) {
  constexpr uint64_t kEachLane = ~uint64_t{0} / static_cast<Bits>(~Bits{0});
  const uint64_t exponents = exponent * kEachLane;
  const uint64_t lowest_bits = static_cast<Bits>(exponent & -exponent) * kEachLane;
  constexpr uint64_t kSigns = (uint64_t{1} << (8 * sizeof(Bits) - 1)) * kEachLane;
  uint64_t found = 0, last = 0;
  const size_t whole = bytes.size() - bytes.size() % sizeof(last);
  for (size_t at = 0; at < whole; at += sizeof(last)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    found |= (word & exponents) + lowest_bits;
  }
  if (whole < bytes.size()) std::memcpy(&last, bytes.data() + whole, bytes.size() - whole);
  found |= (last & exponents) + lowest_bits;
  return (found & kSigns) == 0;
}

}  // namespace

bool AllFinite(DType dtype, absl::Span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF64:
      return NoneHasAll<uint64_t>(0x7ff0000000000000, bytes);
    case DType::kF32:
      return NoneHasAll<uint32_t>(0x7f800000, bytes);
    case DType::kBF16:
      return NoneHasAll<uint16_t>(0x7f80, bytes);
    case DType::kF16:
      return NoneHasAll<uint16_t>(0x7c00, bytes);
    default:
      return true;
  }
}

int64_t FirstNonFinite(DType dtype, absl::Span<const std::byte> bytes) {
  if (AllFinite(dtype, bytes)) return -1;
  const size_t element_bytes = static_cast<size_t>(DTypeBytes(dtype));
  size_t first = 0;
  while (AllFinite(dtype, bytes.subspan(first * element_bytes, element_bytes))) ++first;
  return static_cast<int64_t>(first);
}

}  // namespace trainctl::checkpoint
