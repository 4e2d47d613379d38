// Formats the element types of a step's computation and weights for display.
#pragma once

#include "schedule/step.h"

namespace trainctl::plan {

inline const char* PrecisionText(const schedule::Types& types) {
  if (types.compute != DType::kBF16) return "fp32";
  return types.master == DType::kBF16 ? "bf16 alone" : "bf16";
}

}  // namespace trainctl::plan
