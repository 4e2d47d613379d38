#include <utility>

#include "base/status.h"
#include "nn/operators.h"

namespace trainctl::nn {
namespace {

void Turn(SegmentRun& run, const model::Operator& op, at::Tensor& x, float sign) {
  const auto& attributes = op.As<model::RopeAttributes>();
  const RopeTables& angles = run.rope(attributes.angle_table);
  run.ForRows([&](int64_t begin, int64_t end, int) {
    run.typed().rope(SegmentRun::Row(x, begin), run.view().positions + begin, angles.cos.data_ptr<float>(),
                     angles.sin.data_ptr<float>(), sign, end - begin, attributes.rotated_heads,
                     attributes.head_dim, attributes.row);
  });
}

void Forward(SegmentRun& run, const model::Operator& op) { Turn(run, op, run.Value(op.outputs[0]), 1.0f); }

void InputGradient(SegmentRun& run, const model::Operator& op) {
  TRAINCTL_CHECK(!run.Gradient(op.inputs[0]).defined());
  at::Tensor& dy = run.Gradient(op.outputs[0]);
  SegmentRun::MakeExclusive(dy);
  Turn(run, op, dy, -1.0f);
  run.Gradient(op.inputs[0]) = std::move(dy);
}

}  // namespace

constinit const OperatorRunner kRopeRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
