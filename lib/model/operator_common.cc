#include "model/operator_common.h"

#include <utility>

namespace trainctl::model {

int AppendValue(Segment& segment, std::string name, int64_t cols) {
  return AppendValue(segment, std::move(name), segment.dtype, segment.shape.tokens(), cols);
}

int AppendValue(Segment& segment, std::string name, DType dtype, int64_t rows, int64_t cols) {
  segment.values.push_back({std::move(name), dtype, rows, cols});
  return static_cast<int>(segment.values.size()) - 1;
}

Work PassOverTokens(const Segment& segment, double elements) {
  Work work;
  work[Resource::kOperators] = 1;
  work[Resource::kMovedBytes] = Tokens(segment) * elements * ElementBytes(segment);
  return work;
}

int64_t WeightGradientTempBytes(const Segment& segment, int64_t numel) {
  return segment.dtype == DType::kF32 ? 0 : numel * DTypeBytes(segment.dtype);
}

double WeightGradientBytes(const Segment& segment, double numel, bool accumulate) {
  const double sum = accumulate ? 8 : 4;
  return segment.dtype == DType::kF32 ? numel * sum : numel * (sum + 2 * ElementBytes(segment));
}

}  // namespace trainctl::model
