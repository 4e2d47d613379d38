
#include "device/aten.h"
#include "nn/operators.h"

namespace trainctl::nn {
namespace {

// Each token's row in this rank's part of the table, and whether another rank has the token instead. Both are
// undefined if this rank has the whole table.
struct LookUp {
  at::Tensor rows;       // int32 [n]
  at::Tensor elsewhere;  // bool [n, 1]
};

LookUp LookUpOf(SegmentRun& run, const model::Operator& op) {
  const auto& attributes = op.As<model::EmbeddingAttributes>();
  LookUp look_up;
  if (run.segment().tensor.ranks == 1) return look_up;
  const at::Tensor tokens =
      run.device().View(const_cast<int32_t*>(run.view().tokens), {run.num_tokens()}, at::kInt);
  look_up.rows = tokens - attributes.first;
  look_up.elsewhere = look_up.rows.lt(0).logical_or_(look_up.rows.ge(attributes.vocab)).unsqueeze(1);
  look_up.rows.clamp_(0, attributes.vocab - 1);
  return look_up;
}

void Forward(SegmentRun& run, const model::Operator& op) {
  const LookUp look_up = LookUpOf(run, op);
  if (look_up.rows.defined()) {
    at::Tensor& out = run.Value(op.outputs[0]);
    run.typed().embedding(out.data_ptr(), run.Bound(op.weights[0]).data, look_up.rows.data_ptr<int32_t>(),
                          run.num_tokens(), out.size(1));
    out.masked_fill_(look_up.elsewhere, 0);
    return;
  }
  run.typed().embedding(run.Value(op.outputs[0]).data_ptr(), run.Bound(op.weights[0]).data, run.view().tokens,
                        run.num_tokens(), op.As<model::EmbeddingAttributes>().hidden);
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  const auto& [vocab, hidden, first] = op.As<model::EmbeddingAttributes>();
  const BoundParameter& table = run.Bound(op.weights[0]);
  if (!table.accumulate) run.device().Zero(table.gradient, vocab * hidden * run.accumulator_bytes());
  const LookUp look_up = LookUpOf(run, op);
  if (look_up.rows.defined()) {
    const at::Tensor gradient = run.Gradient(op.outputs[0]).masked_fill(look_up.elsewhere, 0);
    run.typed().embedding_backward(table.gradient, gradient.data_ptr(), look_up.rows.data_ptr<int32_t>(),
                                   run.num_tokens(), hidden);
    return;
  }
  run.typed().embedding_backward(table.gradient, run.Gradient(op.outputs[0]).data_ptr(), run.view().tokens,
                                 run.num_tokens(), hidden);
}

}  // namespace

constinit const OperatorRunner kEmbeddingRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
