#include <utility>

#include "nn/operators.h"

namespace trainctl::nn {
namespace {

at::Tensor Weight(SegmentRun& run, const model::Operator& op) {
  const auto& [in, out] = op.As<model::LinearAttributes>();
  return run.Matrix(op.weights, out, in);
}

void Forward(SegmentRun& run, const model::Operator& op) {
  at::Tensor& y = run.Value(op.outputs[0]);
  SegmentRun::Multiply(y, run.Value(op.inputs[0]), Weight(run, op).t());
  if (op.biases.empty()) return;
  run.AddBias(y, op.biases[0]);
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  const at::Tensor dy = run.Gradient(op.outputs[0]);
  if (!op.biases.empty()) run.AddBiasGradient(op.biases[0], dy, run.Bound(op.biases[0]).accumulate);
  at::Tensor dx = run.Empty({dy.size(0), op.As<model::LinearAttributes>().in});
  SegmentRun::Multiply(dx, dy, Weight(run, op));
  run.Receive(op.inputs[0], std::move(dx));
}

void WeightGradient(SegmentRun& run, const model::Operator& op) {
  run.AddWeightGradient(op.weights, run.Gradient(op.outputs[0]), run.Value(op.inputs[0]),
                        run.Bound(op.weights[0]).accumulate);
}

}  // namespace

constinit const OperatorRunner kLinearRunner = {
    .forward = Forward, .input_gradient = InputGradient, .weight_gradient = WeightGradient};

}  // namespace trainctl::nn
