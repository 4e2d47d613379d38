#include "nn/operators.h"

namespace trainctl::nn {
namespace {

void Forward(SegmentRun& run, const model::Operator& op) {
  run.ForChunks(run.Value(op.outputs[0]).size(0), [&](int64_t begin, int64_t end, int) {
    run.typed().add(SegmentRun::Row(run.Value(op.outputs[0]), begin),
                    SegmentRun::Row(run.Value(op.inputs[0]), begin),
                    (end - begin) * op.As<model::AddAttributes>().hidden);
  });
}

// `norm` is the next operator and normalizes the sum.
void ForwardWithNorm(SegmentRun& run, const model::Operator& op, const model::Operator& norm) {
  const auto& attributes = norm.As<model::RmsNormAttributes>();
  const at::Tensor& sum = run.Value(op.outputs[0]);
  run.typed().add_rms_norm(sum.data_ptr(), run.Value(norm.outputs[0]).data_ptr(),
                           run.Value(norm.outputs[1]).data_ptr(), run.Value(op.inputs[0]).data_ptr(),
                           run.Bound(norm.weights[0]).data, attributes.gain,
                           static_cast<float>(attributes.eps), sum.size(0), attributes.hidden);
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  for (int input : op.inputs) run.Receive(input, run.Gradient(op.outputs[0]));
}

}  // namespace

constinit const OperatorRunner kAddRunner = {
    .forward = Forward, .forward_with_next = ForwardWithNorm, .input_gradient = InputGradient};

}  // namespace trainctl::nn
