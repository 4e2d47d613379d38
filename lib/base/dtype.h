// Element types of tensors, as named in recipes, plans and safetensors files.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/status.h"

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

// The names of the safetensors format: "F32", "BF16", ...
absl::string_view DTypeName(DType dtype);
absl::StatusOr<DType> ParseDType(absl::string_view name);

}  // namespace trainctl
