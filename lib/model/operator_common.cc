#include "model/operator_common.h"

#include <algorithm>
#include <utility>

namespace trainctl::model {
namespace {

// Whether a product adds to a weight gradient directly. Otherwise, its result is rounded and then added.
bool IsDirect(const Segment& segment) {
  return segment.dtype == AccumulatorOf(segment.dtype) || segment.on_device;
}

}  // namespace

int AppendValue(Segment& segment, std::string name, int64_t rows, int64_t cols) {
  return AppendValue(segment, std::move(name), segment.dtype, rows, cols);
}

int AppendValue(Segment& segment, std::string name, DType dtype, int64_t rows, int64_t cols) {
  segment.values.push_back({std::move(name), dtype, rows, cols});
  return static_cast<int>(segment.values.size()) - 1;
}

Work PassOverRows(const Segment& segment, const Operator& op, double elements) {
  Work work;
  work[Resource::kOperators] = 1;
  work[Resource::kMovedBytes] = static_cast<double>(NumRows(segment, op)) * elements * ElementBytes(segment);
  return work;
}

void AddExchange(const OperatorExchange& exchange, int64_t ranks, Work& work) {
  const Exchange one = {
      .collective = exchange.collective, .bytes = exchange.bytes, .ranks = static_cast<int>(ranks)};
  work[Resource::kSentBytes] += exchange.count * SentBytes(one);
  work[Resource::kTensorExchanges] += exchange.count;
  work.exchanges.push_back({one, exchange.count});
}

int64_t SumScratchBytes(int64_t numel, int64_t element_bytes, int64_t ranks) {
  if (ranks <= 1) return 0;
  return (ranks - 1) * std::min((numel + ranks - 1) / ranks * element_bytes, kSumPieceBytes);
}

int64_t WeightGradientTempBytes(const Segment& segment, int64_t numel) {
  return IsDirect(segment) ? 0 : numel * DTypeBytes(segment.dtype);
}

double WeightGradientBytes(const Segment& segment, double numel, bool accumulate) {
  const double sum = static_cast<double>((accumulate ? 2 : 1) * AccumulatorBytes(segment));
  return IsDirect(segment) ? numel * sum : numel * (sum + 2 * ElementBytes(segment));
}

}  // namespace trainctl::model
