#include <utility>

#include "nn/attention.h"
#include "nn/operators.h"

namespace trainctl::nn {
namespace {

AttentionShape ShapeOf(const SegmentRun& run, const model::Operator& op) {
  return AttentionShapeOf(run.segment().shape, op.As<model::AttentionAttributes>());
}

void Forward(SegmentRun& run, const model::Operator& op) {
  const at::Tensor& qkv = run.Value(op.inputs[0]);
  at::Tensor& out = run.Value(op.outputs[0]);
  at::Tensor& lse = run.Value(op.outputs[1]);
  if (run.cache() != nullptr) {
    CachedAttentionForward(ShapeOf(run, op), qkv, run.view(), *run.cache(), out, lse);
  } else {
    AttentionForward(ShapeOf(run, op), qkv, run.view(), out, lse);
  }
}

at::Tensor Gradient(SegmentRun& run, const model::Operator& op, const Rotation* rotation) {
  at::Tensor dqkv = at::empty_like(run.Value(op.inputs[0]));
  AttentionBackward(ShapeOf(run, op), run.Value(op.inputs[0]), run.view(), run.Value(op.outputs[0]),
                    run.Value(op.outputs[1]), run.Gradient(op.outputs[0]), rotation, dqkv);
  return dqkv;
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  run.Receive(op.inputs[0], Gradient(run, op, nullptr));
}

void InputGradientWithRope(SegmentRun& run, const model::Operator& rope, const model::Operator& op) {
  const Rotation rotation = {.kernels = run.typed(),
                             .positions = run.view().positions,
                             .angles = run.rope(rope.As<model::RopeAttributes>().angle_table)};
  run.Receive(rope.inputs[0], Gradient(run, op, &rotation));
}

}  // namespace

constinit const OperatorRunner kAttentionRunner = {.forward = Forward,
                                                   .input_gradient = InputGradient,
                                                   .input_gradient_with_previous = InputGradientWithRope};

}  // namespace trainctl::nn
