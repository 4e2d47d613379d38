// Element types of tensors, as named in recipes, plans and safetensors files.
#pragma once

#include "absl/strings/string_view.h"
#include "base/dtype_id.h"
#include "base/status.h"

namespace trainctl {

// The names of the safetensors format: "F32", "BF16", ...
absl::string_view DTypeName(DType dtype);
absl::StatusOr<DType> ParseDType(absl::string_view name);

}  // namespace trainctl
