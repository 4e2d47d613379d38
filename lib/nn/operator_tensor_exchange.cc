#include <string>
#include <utility>

#include "nn/operators.h"

namespace trainctl::nn {
namespace {

using model::TensorExchange;

TensorExchange WayOf(const model::Operator& op) { return op.As<model::TensorExchangeAttributes>().way; }

std::string NameOf(const SegmentRun& run, const model::Operator& op) {
  return model::TensorExchangeName(run.segment(), op, model::Pass::kForward);
}
std::string NameOfGradient(const SegmentRun& run, const model::Operator& op) {
  return model::TensorExchangeName(run.segment(), op, model::Pass::kInputGradient);
}

// The output of an in-place exchange has the storage of the input.
void Forward(SegmentRun& run, const model::Operator& op) {
  at::Tensor& y = run.Value(op.outputs[0]);
  switch (WayOf(op)) {
    case TensorExchange::kGatherRows:
      return run.tensor().GatherRows(NameOf(run, op), run.Value(op.inputs[0]), y);
    case TensorExchange::kScatterSums:
      return run.tensor().ScatterSums(NameOf(run, op), run.Value(op.inputs[0]), y);
    case TensorExchange::kSumParts:
      return run.tensor().Sum(NameOf(run, op), y);
    case TensorExchange::kSumGradients:
      return;
  }
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  at::Tensor dy = std::move(run.Gradient(op.outputs[0]));
  const auto like_input = [&] {
    const model::Value& input = run.segment().values[static_cast<size_t>(op.inputs[0])];
    return run.Empty({input.rows, input.cols});
  };
  switch (WayOf(op)) {
    case TensorExchange::kGatherRows: {
      at::Tensor dx = like_input();
      run.tensor().ScatterSums(NameOfGradient(run, op), dy, dx);
      return run.Receive(op.inputs[0], std::move(dx));
    }
    case TensorExchange::kScatterSums: {
      at::Tensor dx = like_input();
      run.tensor().GatherRows(NameOfGradient(run, op), dy, dx);
      return run.Receive(op.inputs[0], std::move(dx));
    }
    case TensorExchange::kSumParts:
      return run.Receive(op.inputs[0], std::move(dy));
    case TensorExchange::kSumGradients:
      SegmentRun::MakeExclusive(dy);
      run.tensor().Sum(NameOfGradient(run, op), dy);
      return run.Receive(op.inputs[0], std::move(dy));
  }
}

}  // namespace

constinit const OperatorRunner kTensorExchangeRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
