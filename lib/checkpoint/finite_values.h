// Whether stored numbers are finite. Pure; thread safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/dtype_id.h"

namespace trainctl::checkpoint {

// Of whole elements, little endian, aligned or not. Integers are always finite.
bool AllFinite(DType dtype, absl::Span<const std::byte> bytes);

// The position of the first element that is not finite; -1: all are.
int64_t FirstNonFinite(DType dtype, absl::Span<const std::byte> bytes);

}  // namespace trainctl::checkpoint
