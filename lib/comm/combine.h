// Sums and maxima of buffers between hosts, element by element in the order of the ranks, so that every rank
// and every run has the same bits. Pure; thread safe.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "base/dtype_id.h"

namespace trainctl::comm {

enum class Combine : uint8_t { kSum, kMax };

// What the elements of a buffer are, and what becomes of those of several ranks.
struct Reduction {
  DType dtype = DType::kF32;  // or kF64 or kBF16
  Combine combine = Combine::kSum;
};

// out[i] = inputs[0][i], inputs[1][i], ... combined in that order; `out` may be one of the inputs. bf16 is
// summed in fp32 and rounded once. The maximum of several of which one is NaN is NaN.
void CombineInOrder(Reduction how, void* out, absl::Span<const void* const> inputs, int64_t count);

}  // namespace trainctl::comm
