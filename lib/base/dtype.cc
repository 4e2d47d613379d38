#include "base/dtype.h"

#include <array>

namespace trainctl {
namespace {

struct NamedDType {
  DType dtype;
  absl::string_view name;
};
constexpr std::array kDTypes = {
    NamedDType{DType::kF32, "F32"}, NamedDType{DType::kF64, "F64"}, NamedDType{DType::kBF16, "BF16"},
    NamedDType{DType::kF16, "F16"}, NamedDType{DType::kI64, "I64"}, NamedDType{DType::kI32, "I32"},
    NamedDType{DType::kU16, "U16"}, NamedDType{DType::kU8, "U8"},   NamedDType{DType::kBool, "BOOL"},
};

}  // namespace

absl::string_view DTypeName(DType dtype) {
  for (const NamedDType& entry : kDTypes) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "?";
}

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (const NamedDType& entry : kDTypes) {
    if (entry.name == name) return entry.dtype;
  }
  return BadDataError(absl::StrCat("unknown element type '", name, "'"));
}

}  // namespace trainctl
