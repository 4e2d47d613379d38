// Collectives before and after the products of tensor parallelism. They gather or sum the ranks' rows, and
// the backward does the reverse with the gradient (arXiv 1909.08053, figure 3; 2205.05198, figure 5).

#include <optional>

#include "absl/strings/str_cat.h"
#include "model/operator_common.h"

namespace trainctl::model {
namespace {

TensorExchange WayOf(const Operator& op) { return op.As<TensorExchangeAttributes>().way; }

// Returns the number of elements in all rows.
int64_t WholeNumel(const Segment& segment, const Operator& op) {
  return segment.shape.tokens() * op.As<TensorExchangeAttributes>().hidden;
}

void Complete(Segment& segment, Operator& op, const std::string& name) {
  const int64_t ranks = segment.tensor.ranks;
  const int64_t rows = NumRows(segment, op);
  const int64_t hidden = op.As<TensorExchangeAttributes>().hidden;
  const int64_t scratch = SumScratchBytes(WholeNumel(segment, op), DTypeBytes(segment.dtype), ranks);
  switch (WayOf(op)) {
    case TensorExchange::kGatherRows:
      op.outputs = {AppendValue(segment, name, rows * ranks, hidden)};
      op.backward_temp_bytes = scratch;
      return;
    case TensorExchange::kScatterSums:
      op.outputs = {AppendValue(segment, name, rows / ranks, hidden)};
      op.forward_temp_bytes = scratch;
      return;
    case TensorExchange::kSumParts:
      op.outputs = {AppendValue(segment, name, rows, hidden)};
      op.in_place_of = op.inputs[0];
      op.forward_temp_bytes = scratch;
      op.input_gradient = InputGradient::kShareOutputGradient;
      return;
    case TensorExchange::kSumGradients:
      op.outputs = {AppendValue(segment, name, rows, hidden)};
      op.in_place_of = op.inputs[0];
      op.backward_temp_bytes = scratch;
      op.input_gradient = InputGradient::kReuseOutputGradient;
      return;
  }
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) { return {}; }

// Returns the collective that moves the rows of a pass, or nullopt if every rank already has them.
std::optional<Collective> CollectiveOf(TensorExchange way, Pass pass) {
  const bool forward = pass == Pass::kForward;
  switch (way) {
    case TensorExchange::kGatherRows:
      return forward ? Collective::kAllGather : Collective::kReduceScatter;
    case TensorExchange::kScatterSums:
      return forward ? Collective::kReduceScatter : Collective::kAllGather;
    case TensorExchange::kSumParts:
      if (forward) return Collective::kAllReduce;
      break;
    case TensorExchange::kSumGradients:
      if (!forward) return Collective::kAllReduce;
      break;
  }
  return std::nullopt;
}

void Exchanges(const Segment& segment, const Operator& op, Pass pass, std::vector<OperatorExchange>& list) {
  const std::optional<Collective> collective = CollectiveOf(WayOf(op), pass);
  if (!collective) return;
  list.push_back({.name = TensorExchangeName(segment, op, pass),
                  .collective = *collective,
                  .bytes = static_cast<double>(WholeNumel(segment, op)) * ElementBytes(segment)});
}

}  // namespace

std::string TensorExchangeName(const Segment& segment, const Operator& op, Pass pass) {
  const std::string& name = segment.values[static_cast<size_t>(op.outputs[0])].name;
  return pass == Pass::kForward ? name : absl::StrCat("gradient of ", name);
}

constinit const OperatorEntry kTensorExchangeOperator = {
    .name = "tensor exchange",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
    .exchanges = Exchanges,
};

}  // namespace trainctl::model
