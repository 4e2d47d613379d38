#include <utility>

#include "nn/operators.h"

namespace trainctl::nn {
namespace {

// Multiplies `x` in place.
void Multiply(const SegmentRun& run, const model::Operator& op, const at::Tensor& x) {
  const auto& attributes = op.As<model::ScaleAttributes>();
  run.ForChunks(x.size(0), [&](int64_t begin, int64_t end, int) {
    void* rows = SegmentRun::Row(x, begin);
    run.typed().scale(rows, rows, static_cast<float>(attributes.factor), (end - begin) * attributes.cols);
  });
}

void Forward(SegmentRun& run, const model::Operator& op) { Multiply(run, op, run.Value(op.outputs[0])); }

void InputGradient(SegmentRun& run, const model::Operator& op) {
  at::Tensor gradient = std::move(run.Gradient(op.outputs[0]));
  SegmentRun::MakeExclusive(gradient);
  Multiply(run, op, gradient);
  run.Receive(op.inputs[0], std::move(gradient));
}

}  // namespace

constinit const OperatorRunner kScaleRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
