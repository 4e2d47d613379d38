// Checks whether stored numbers are finite. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/dtype_id.h"

namespace trainctl::checkpoint {

// Whether all elements are finite. `bytes` must hold whole little-endian elements, which may be unaligned.
// Integers are always finite.
bool AllFinite(DType dtype, absl::Span<const std::byte> bytes);

// Returns the index of the first element that is not finite, or -1 if all are finite.
int64_t FirstNonFinite(DType dtype, absl::Span<const std::byte> bytes);

}  // namespace trainctl::checkpoint
