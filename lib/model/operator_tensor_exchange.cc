// Where tensor parallelism enters and leaves its products: what each rank has is gathered, or summed, and the
// gradient goes back the other way (arXiv 1909.08053, figure 3; 2205.05198, figure 5).

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

TensorExchange WayOf(const Operator& op) { return op.As<TensorExchangeAttributes>().way; }

// Elements of all rows.
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

// Between the products of a layer the ranks of a CPU wait for one another and for the threads of Gloo: an
// exchange takes 1 to 2 ms on top of its bytes, but only 0.1 ms if it is hidden behind compute (measured
// with 64 to 96 exchanges a step on two cores, docs/reference/benchmarks.md, own step times).
constexpr double kCollectivesOfCpuExchange = 15;

Work WorkOf(const Segment& segment, const Operator& op, Collective collective) {
  Work work;
  const double bytes = static_cast<double>(WholeNumel(segment, op)) * ElementBytes(segment);
  AddExchange(collective, bytes, segment.tensor.ranks, 1, work);
  if (!segment.on_device) work[Resource::kCollectives] = kCollectivesOfCpuExchange;
  return work;
}

Work ForwardWork(const Segment& segment, const Operator& op) {
  switch (WayOf(op)) {
    case TensorExchange::kGatherRows:
      return WorkOf(segment, op, Collective::kAllGather);
    case TensorExchange::kScatterSums:
      return WorkOf(segment, op, Collective::kReduceScatter);
    case TensorExchange::kSumParts:
      return WorkOf(segment, op, Collective::kAllReduce);
    case TensorExchange::kSumGradients:
      break;
  }
  return {};
}

Work GradientWork(const Segment& segment, const Operator& op, bool accumulate) {
  switch (WayOf(op)) {
    case TensorExchange::kGatherRows:
      return WorkOf(segment, op, Collective::kReduceScatter);
    case TensorExchange::kScatterSums:
      return WorkOf(segment, op, Collective::kAllGather);
    case TensorExchange::kSumGradients:
      return WorkOf(segment, op, Collective::kAllReduce);
    case TensorExchange::kSumParts:
      break;
  }
  return {};
}

}  // namespace

constinit const OperatorEntry kTensorExchangeOperator = {
    .name = "tensor exchange",
    .complete = Complete,
    .forward_work = ForwardWork,
    .input_gradient_work = GradientWork,
};

}  // namespace trainctl::model
