#include "nn/operators.h"

namespace trainctl::nn {
namespace {

void Forward(SegmentRun& run, const model::Operator& op) {
  const auto& attributes = op.As<model::RmsNormAttributes>();
  run.ForChunks(run.Value(op.inputs[0]).size(0), [&](int64_t begin, int64_t end, int) {
    run.typed().rms_norm(
        SegmentRun::Row(run.Value(op.outputs[0]), begin), SegmentRun::Row(run.Value(op.outputs[1]), begin),
        SegmentRun::Row(run.Value(op.inputs[0]), begin), run.Bound(op.weights[0]).data,
        kernels::Gain::kWeight, static_cast<float>(attributes.eps), end - begin, attributes.hidden);
  });
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  const int input = op.inputs[0];
  const int64_t hidden = op.As<model::RmsNormAttributes>().hidden;
  const BoundParameter& weight = run.Bound(op.weights[0]);
  at::Tensor& dx = run.Gradient(input);
  const bool add = dx.defined();
  if (add) {
    SegmentRun::MakeExclusive(dx);
  } else {
    const at::Tensor& output_gradient = run.Gradient(op.outputs[0]);
    dx = output_gradient.use_count() > 1 ? at::empty_like(output_gradient) : output_gradient;
  }
  const at::Tensor dy = run.Gradient(op.outputs[0]);
  const int64_t sum_bytes = hidden * run.accumulator_bytes();
  if (!weight.accumulate) run.device().Zero(weight.gradient, sum_bytes);
  const int chunks = run.NumChunks();
  std::vector<char> partial;  // a sum per thread; a device adds where it belongs
  if (run.device().is_cpu()) partial.assign(static_cast<size_t>(chunks * sum_bytes), 0);
  run.ForChunks(dx.size(0), [&](int64_t begin, int64_t end, int chunk) {
    run.typed().rms_norm_backward(SegmentRun::Row(dx, begin),
                                  partial.empty() ? weight.gradient : partial.data() + chunk * sum_bytes,
                                  SegmentRun::Row(dy, begin), SegmentRun::Row(run.Value(input), begin),
                                  SegmentRun::Row(run.Value(op.outputs[1]), begin), weight.data,
                                  kernels::Gain::kWeight, add, end - begin, hidden);
  });
  for (int chunk = 0; chunk < chunks && !partial.empty(); ++chunk)
    run.sums().accumulate(weight.gradient, partial.data() + chunk * sum_bytes, hidden);
}

}  // namespace

constinit const OperatorRunner kRmsNormRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
