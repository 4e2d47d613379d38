#include <utility>

#include "nn/operators.h"

namespace trainctl::nn {
namespace {

// Rotates `x` in place. A `sign` of -1 rotates it back.
void Rotate(const SegmentRun& run, const model::Operator& op, const at::Tensor& x, float sign) {
  const auto& attributes = op.As<model::RopeAttributes>();
  const RopeTables& angles = run.rope(attributes.angle_table);
  const bool is_whole =
      attributes.rotated_dim == attributes.head_dim && attributes.pairs == kernels::RopePairs::kHalves;
  run.ForRows([&](int64_t begin, int64_t end, int) {
    void* rows = SegmentRun::Row(x, begin);
    const int32_t* positions = run.view().positions + begin;
    const float* cos = angles.cos.data_ptr<float>();
    const float* sin = angles.sin.data_ptr<float>();
    if (is_whole) {
      run.typed().rope(rows, positions, cos, sin, sign, end - begin, attributes.rotated_heads,
                       attributes.head_dim, attributes.row);
    } else {
      run.typed().partial_rope(rows, positions, cos, sin, sign, attributes.pairs, end - begin,
                               attributes.rotated_heads, attributes.head_dim, attributes.rotated_dim,
                               attributes.row);
    }
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
