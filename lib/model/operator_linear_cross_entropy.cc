// The head. Computes the logits in pieces of rows, and the loss and both gradients of each piece while it is
// in memory. The backward is not split in two, because a separate weight gradient would read the gradient of
// all logits, [n, vocab]. The pieces exist to avoid storing it.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model/operator_common.h"

namespace trainctl::model {
namespace {

// Limits of the memory for logits, large enough for efficient products. Each piece reads and writes the fp32
// gradient of the whole matrix. With pieces of 130 rows and a vocabulary of 128,256, a device would spend
// more time on that than on the products.
constexpr int64_t kMaxLogitBytes = int64_t{32} << 20;
constexpr int64_t kMaxLogitBytesOnDevice = int64_t{512} << 20;
// Maximum number of rows in the tiles of a device's matrix products. Rows beyond whole tiles take the time of
// one more tile.
constexpr int64_t kRowsOfTile = 256;

void Complete(Segment& segment, Operator& op, const std::string& name) {
  const auto& attributes = op.As<LinearCrossEntropyAttributes>();
  const int64_t logits = attributes.rows_at_once * attributes.vocab;
  op.input_gradient = InputGradient::kNewInForward;
  op.forward_temp_bytes = logits * DTypeBytes(segment.dtype);
  op.backward_temp_bytes =
      op.forward_temp_bytes + WeightGradientTempBytes(segment, attributes.vocab * attributes.hidden);
  if (segment.tensor.ranks == 1) return;
  // Statistics of each row from this rank and from all ranks, and a copy of the logits in the accumulator
  // type if theirs is different.
  const int64_t bytes = AccumulatorBytes(segment);
  const int64_t parts = attributes.rows_at_once * kLossStatistics * (segment.tensor.ranks + 1) * bytes +
                        (segment.dtype == AccumulatorOf(segment.dtype) ? 0 : logits * bytes);
  op.forward_temp_bytes += parts;
  const int64_t slopes = attributes.softcap > 0 ? logits * bytes : 0;
  op.backward_temp_bytes = std::max(op.backward_temp_bytes, op.forward_temp_bytes + slopes);
}

// Returns the number of pieces in which the logits are computed.
double NumPieces(const Segment& segment, const LinearCrossEntropyAttributes& attributes) {
  return std::ceil(Tokens(segment) / static_cast<double>(attributes.rows_at_once));
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  const auto& attributes = op.As<LinearCrossEntropyAttributes>();
  const bool gradient = pass == Pass::kLossAndGradient;
  const double n = Tokens(segment);
  const double hidden = static_cast<double>(attributes.hidden);
  const double vocab = static_cast<double>(attributes.vocab);
  const double pieces = NumPieces(segment, attributes);
  const double products = gradient ? 3 : 1;
  Work work;
  work[Resource::kMatmulFlops] = products * 2 * n * hidden * vocab;
  work[Resource::kLogits] = n * vocab;
  work[Resource::kOperandBytes] =
      products * (n * hidden + pieces * hidden * vocab + n * vocab) * ElementBytes(segment);
  const double rows = static_cast<double>(attributes.rows_at_once);
  const double element = ElementBytes(segment);
  work.products = {{{segment.dtype, rows, hidden, vocab, element}, pieces}};
  if (gradient) {
    const double bytes = WeightGradientBytes(segment, hidden * vocab, true);
    work[Resource::kOperandBytes] += pieces * bytes;
    work.products.push_back({{segment.dtype, rows, vocab, hidden, element}, pieces});
    work.products.push_back({{segment.dtype, vocab, rows, hidden, bytes / (hidden * vocab)}, pieces});
  }
  work[Resource::kOperators] = pieces * (products + 1);
  return work;
}

// Adds the all-gathers of the rows' statistics.
void Exchanges(const Segment& segment, const Operator& op, Pass pass, std::vector<OperatorExchange>& list) {
  const double pieces = NumPieces(segment, op.As<LinearCrossEntropyAttributes>());
  const double bytes = Tokens(segment) * static_cast<double>(kLossStatistics * segment.tensor.ranks *
                                                             AccumulatorBytes(segment));
  list.push_back({.name = LossExchangeName(0),
                  .collective = Collective::kAllGather,
                  .bytes = bytes / pieces,
                  .count = pieces});
}

}  // namespace

std::string LossExchangeName(int64_t first_row) { return absl::StrCat("loss of row ", first_row); }

int64_t LogitRowsAtOnce(const MicroBatchShape& shape, int64_t vocab, DType dtype, bool on_device) {
  const int64_t bytes = on_device ? kMaxLogitBytesOnDevice : kMaxLogitBytes;
  int64_t rows = std::max<int64_t>(1, bytes / (vocab * DTypeBytes(dtype)));
  if (on_device && rows > kRowsOfTile) rows -= rows % kRowsOfTile;
  return std::min(rows, shape.tokens());
}

constinit const OperatorEntry kLinearCrossEntropyOperator = {
    .name = "linear cross entropy",
    .passes = {Pass::kForward, Pass::kLossAndGradient},
    .complete = Complete,
    .work = WorkOfPass,
    .exchanges = Exchanges,
};

}  // namespace trainctl::model
