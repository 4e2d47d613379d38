#include <utility>

#include "nn/operators.h"

namespace trainctl::nn {
namespace {

void Forward(SegmentRun& run, const model::Operator& op) {
  const auto& attributes = op.As<model::SwiGluAttributes>();
  run.ForRows([&](int64_t begin, int64_t end, int) {
    run.typed().gated_activation(SegmentRun::Row(run.Value(op.outputs[0]), begin),
                                 SegmentRun::Row(run.Value(op.inputs[0]), begin), attributes.activation,
                                 end - begin, attributes.ffn);
  });
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  at::Tensor storage = run.Value(op.inputs[0]);  // the gradient overwrites the saved input
  const auto& attributes = op.As<model::SwiGluAttributes>();
  run.ForRows([&](int64_t begin, int64_t end, int) {
    run.typed().gated_activation_backward(
        SegmentRun::Row(storage, begin), SegmentRun::Row(run.Gradient(op.outputs[0]), begin),
        SegmentRun::Row(storage, begin), attributes.activation, end - begin, attributes.ffn);
  });
  run.Receive(op.inputs[0], std::move(storage));
}

}  // namespace

constinit const OperatorRunner kSwiGluRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
