// Element types only, for code that must not include Abseil because nvcc compiles its headers slowly.
#pragma once

#include <cstdint>

namespace trainctl {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI64, kI32, kU16, kU8, kBool };

constexpr int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kU16:
      return 2;
    default:
      return 1;
  }
}

// Returns the type used to sum elements and to store parameter gradients.
constexpr DType AccumulatorOf(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

}  // namespace trainctl
