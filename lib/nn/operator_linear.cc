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
  run.ForRows([&](int64_t begin, int64_t end, int) {
    run.typed().add_bias(SegmentRun::Row(y, begin), run.Bound(op.biases[0]).data, end - begin, y.size(1));
  });
}

void AddBiasGradient(SegmentRun& run, const BoundParameter& bias, const at::Tensor& dy) {
  if (!bias.accumulate) run.device().Zero(bias.gradient, dy.size(1) * kFloatBytes);
  run.typed().bias_gradient(bias.gradient, dy.data_ptr(), run.num_tokens(), dy.size(1));
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  const at::Tensor dy = run.Gradient(op.outputs[0]);
  if (!op.biases.empty()) AddBiasGradient(run, run.Bound(op.biases[0]), dy);
  at::Tensor dx = run.Empty({run.num_tokens(), op.As<model::LinearAttributes>().in});
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
