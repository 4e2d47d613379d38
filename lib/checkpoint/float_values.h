// Converts stored numbers to floats, without LibTorch. Pure; thread-safe.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "base/dtype_id.h"

namespace trainctl::checkpoint {

// Fills `values` with the elements in `bytes`, whose type must be F32, BF16 or F16. The conversion is exact.
// `bytes` holds as many little-endian elements as `values`, and may be unaligned.
void ConvertToFloat(DType dtype, absl::Span<const std::byte> bytes, absl::Span<float> values);

}  // namespace trainctl::checkpoint
