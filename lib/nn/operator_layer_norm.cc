#include <optional>

#include "nn/norm_gradient.h"
#include "nn/operators.h"

namespace trainctl::nn {
namespace {

void Forward(SegmentRun& run, const model::Operator& op) {
  const auto& attributes = op.As<model::LayerNormAttributes>();
  run.ForChunks(run.Value(op.inputs[0]).size(0), [&](int64_t begin, int64_t end, int) {
    run.typed().layer_norm(
        SegmentRun::Row(run.Value(op.outputs[0]), begin), SegmentRun::Row(run.Value(op.outputs[1]), begin),
        SegmentRun::Row(run.Value(op.outputs[2]), begin), SegmentRun::Row(run.Value(op.inputs[0]), begin),
        run.Bound(op.weights[0]).data, op.biases.empty() ? nullptr : run.Bound(op.biases[0]).data,
        attributes.gain, static_cast<float>(attributes.eps), end - begin, attributes.hidden);
  });
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  const auto& attributes = op.As<model::LayerNormAttributes>();
  const int64_t hidden = attributes.hidden;
  const NormInputGradient input = PrepareNormGradient(run, op);
  const at::Tensor dy = run.Gradient(op.outputs[0]);
  VectorGradient weight(run, op.weights[0], hidden);
  std::optional<VectorGradient> bias;
  if (!op.biases.empty()) bias.emplace(run, op.biases[0], hidden);
  run.ForChunks(input.dx.size(0), [&](int64_t begin, int64_t end, int chunk) {
    run.typed().layer_norm_backward(
        SegmentRun::Row(input.dx, begin), weight.ForChunk(chunk), bias ? bias->ForChunk(chunk) : nullptr,
        SegmentRun::Row(dy, begin), SegmentRun::Row(run.Value(op.inputs[0]), begin),
        SegmentRun::Row(run.Value(op.outputs[1]), begin), SegmentRun::Row(run.Value(op.outputs[2]), begin),
        run.Bound(op.weights[0]).data, attributes.gain, input.add, end - begin, hidden);
  });
  weight.Finish();
  if (bias) bias->Finish();
}

}  // namespace

constinit const OperatorRunner kLayerNormRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
