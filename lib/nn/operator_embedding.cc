#include "nn/operators.h"

namespace trainctl::nn {
namespace {

void Forward(SegmentRun& run, const model::Operator& op) {
  run.typed().embedding(run.Value(op.outputs[0]).data_ptr(), run.Bound(op.weights[0]).data, run.view().tokens,
                        run.num_tokens(), op.As<model::EmbeddingAttributes>().hidden);
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  const auto& [vocab, hidden] = op.As<model::EmbeddingAttributes>();
  const BoundParameter& table = run.Bound(op.weights[0]);
  if (!table.accumulate) run.device().Zero(table.gradient, vocab * hidden * kFloatBytes);
  run.typed().embedding_backward(table.gradient, run.Gradient(op.outputs[0]).data_ptr(), run.view().tokens,
                                 run.num_tokens(), hidden);
}

}  // namespace

constinit const OperatorRunner kEmbeddingRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
