#include "nn/operators.h"

namespace trainctl::nn {
namespace {

void Forward(SegmentRun& run, const model::Operator& op) {
  at::Tensor& y = run.Value(op.outputs[0]);
  run.AddBias(y, op.biases[0]);
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  run.AddBiasGradient(op.biases[0], run.Gradient(op.outputs[0]), run.Bound(op.biases[0]).accumulate);
  run.Receive(op.inputs[0], run.Gradient(op.outputs[0]));
}

}  // namespace

constinit const OperatorRunner kBiasRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
