#include <utility>

#include "nn/operators.h"

namespace trainctl::nn {
namespace {

// Rotates `x` in place. A `sign` of -1 rotates it back.
void Rotate(const SegmentRun& run, const model::Operator& op, const at::Tensor& x, float sign) {
  const auto& attributes = op.As<model::RopeAttributes>();
  const RopeTables& angles = run.rope(attributes.angle_table);
  run.ForRows([&](int64_t begin, int64_t end, int) {
    run.typed().rope(SegmentRun::Row(x, begin), run.view().positions + begin, angles.cos.data_ptr<float>(),
                     angles.sin.data_ptr<float>(), sign, attributes.pairs, end - begin,
                     attributes.rotated_heads, attributes.head_dim, attributes.rotated_dim, attributes.row);
  });
}

void Forward(SegmentRun& run, const model::Operator& op) {
  Rotate(run, op, run.Value(op.outputs[0]), /*sign=*/1);
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  at::Tensor gradient = std::move(run.Gradient(op.outputs[0]));
  SegmentRun::MakeExclusive(gradient);
  Rotate(run, op, gradient, /*sign=*/-1);
  run.Receive(op.inputs[0], std::move(gradient));
}

}  // namespace

constinit const OperatorRunner kRopeRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
