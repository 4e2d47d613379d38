#include "base/status.h"
#include "nn/operators.h"

namespace trainctl::nn {
namespace {

void Forward(SegmentRun& run, const model::Operator& op) {
  const auto& attributes = op.As<model::RopeAttributes>();
  const RopeTables& angles = run.rope(attributes.angle_table);
  const at::Tensor& x = run.Value(op.outputs[0]);
  run.ForRows([&](int64_t begin, int64_t end, int) {
    run.typed().rope(SegmentRun::Row(x, begin), run.view().positions + begin, angles.cos.data_ptr<float>(),
                     angles.sin.data_ptr<float>(), /*sign=*/1, end - begin, attributes.rotated_heads,
                     attributes.head_dim, attributes.row);
  });
}

// Attention has turned it back.
void InputGradient(SegmentRun& run, const model::Operator& op) {
  TRAINCTL_CHECK(!run.Gradient(op.inputs[0]).defined());
  run.Gradient(op.inputs[0]) = run.Gradient(op.outputs[0]);
}

}  // namespace

constinit const OperatorRunner kRopeRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
