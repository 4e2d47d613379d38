// Combines the buffers of several ranks on the CPU, element by element. The order is that of the ranks, so
// that every rank and every run gets the same bits. Pure; thread-safe.
//
//   CombineInOrder({DType::kBF16, Combine::kMax}, out, {from_rank_0, from_rank_1}, count);
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "base/dtype_id.h"

namespace trainctl::comm {

enum class Combine : uint8_t { kSum, kMax };

// The element type of a buffer, and how to combine the elements of several ranks.
struct Reduction {
  DType dtype = DType::kF32;  // kF32, kF64 or kBF16
  Combine combine = Combine::kSum;
};

// Sets out[i] to inputs[0][i], inputs[1][i], ... combined in that order, for `count` elements. `inputs` must
// not be empty, and `out` may be one of them. Sums of bf16 are computed in fp32 and rounded once. A maximum
// is NaN if any input is NaN.
void CombineInOrder(Reduction how, void* out, absl::Span<const void* const> inputs, int64_t count);

}  // namespace trainctl::comm
