// Whether stored numbers are finite. Pure; thread safe.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "base/dtype_id.h"

namespace trainctl::checkpoint {

// Of whole elements, little endian, aligned or not. Integers are always finite.
bool AllFinite(DType dtype, absl::Span<const std::byte> bytes);

}  // namespace trainctl::checkpoint
