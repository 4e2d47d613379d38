#include "comm/combine.h"

#include <c10/util/BFloat16.h>

#include <cmath>
#include <vector>

#include "base/status.h"
#include "kernels/kernels.h"

namespace trainctl::comm {
namespace {

// T: of the elements; Sum: that sums are formed in.
template <typename T, typename Sum>
void CombineAs(Combine combine, void* out, absl::Span<const void* const> inputs, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Sum result = static_cast<Sum>(static_cast<const T*>(inputs[0])[i]);
    for (size_t k = 1; k < inputs.size(); ++k) {
      const Sum next = static_cast<Sum>(static_cast<const T*>(inputs[k])[i]);
      if (combine == Combine::kSum) {
        result += next;
      } else if (next > result || std::isnan(next)) {
        result = next;
      }
    }
    static_cast<T*>(out)[i] = static_cast<T>(result);
  }
}

}  // namespace

void CombineInOrder(Reduction how, void* out, absl::Span<const void* const> inputs, int64_t count) {
  if (how.dtype == DType::kF32 && how.combine == Combine::kSum) {
    std::vector<const float*> floats;
    for (const void* input : inputs) floats.push_back(static_cast<const float*>(input));
    kernels::Cpu().sum_in_order(static_cast<float*>(out), floats.data(), static_cast<int>(floats.size()),
                                count);
  } else if (how.dtype == DType::kF32) {
    CombineAs<float, float>(how.combine, out, inputs, count);
  } else if (how.dtype == DType::kF64) {
    CombineAs<double, double>(how.combine, out, inputs, count);
  } else {
    TRAINCTL_CHECK(how.dtype == DType::kBF16);
    CombineAs<c10::BFloat16, float>(how.combine, out, inputs, count);
  }
}

}  // namespace trainctl::comm
