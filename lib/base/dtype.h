// Element types of tensors, with the names used in recipes, plans, and safetensors files.
#pragma once

#include "absl/strings/string_view.h"
#include "base/dtype_id.h"
#include "base/status.h"

namespace trainctl {

// Returns the type's name in the safetensors format: "F32", "BF16", ...
absl::string_view DTypeName(DType dtype);
// Parses such a name. Returns BadDataError if it is unknown.
absl::StatusOr<DType> ParseDType(absl::string_view name);

}  // namespace trainctl
