#include <algorithm>
#include <utility>

#include "nn/loss_over_ranks.h"
#include "nn/operators.h"

namespace trainctl::nn {
namespace {

at::Tensor Weight(SegmentRun& run, const model::Operator& op) {
  const auto& attributes = op.As<model::LinearCrossEntropyAttributes>();
  return run.Matrix(op.weights, attributes.vocab, attributes.hidden);
}

// Adds the loss of the token rows [first, first + rows). If gradients are requested, `logits` become their
// own gradient.
void AddLossOfRows(SegmentRun& run, double softcap, at::Tensor& logits, int64_t first, int64_t rows) {
  const LossRequest& loss = run.loss();
  const auto add = [&](double* sum, int64_t begin, int64_t end) {
    run.typed().cross_entropy(sum, SegmentRun::Row(logits, begin), run.view().targets + first + begin,
                              run.view().loss_mask + first + begin, loss.z_loss, static_cast<float>(softcap),
                              loss.scale, end - begin, logits.size(1));
  };
  if (!run.device().is_cpu()) return add(loss.sum, 0, rows);
  std::vector<double> partial(static_cast<size_t>(run.NumChunks()), 0.0);
  run.ForChunks(rows, [&](int64_t begin, int64_t end, int chunk) {
    add(&partial[static_cast<size_t>(chunk)], begin, end);
  });
  for (double part : partial) *loss.sum += part;
}

// Computes the logits in pieces of rows, the loss and, if requested, the gradients.
void Forward(SegmentRun& run, const model::Operator& op) {
  const auto& attributes = op.As<model::LinearCrossEntropyAttributes>();
  const auto& [hidden, vocab, rows_at_once, first, softcap] = attributes;
  const bool is_whole = run.segment().tensor.ranks == 1;
  const bool want_gradient = run.loss().scale != nullptr;
  const int64_t n = run.num_tokens();
  const at::Tensor& x = run.Value(op.inputs[0]);
  const at::Tensor weight = Weight(run, op);
  at::Tensor dx;
  if (want_gradient) dx = run.Empty({n, hidden});
  at::Tensor logits = run.Empty({rows_at_once, vocab});
  const bool has_bias = !op.biases.empty();
  bool accumulate = want_gradient && run.Bound(op.weights[0]).accumulate;
  for (int64_t begin = 0; begin < n; begin += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, n - begin);
    const at::Tensor x_rows = x.narrow(0, begin, rows);
    at::Tensor piece = logits.narrow(0, 0, rows);
    SegmentRun::Multiply(piece, x_rows, weight.t());
    if (has_bias) run.AddBias(piece, op.biases[0]);
    if (is_whole) {
      AddLossOfRows(run, softcap, piece, begin, rows);
    } else {
      AddLossOverRanks(run, attributes, piece, begin, rows);
    }
    if (!want_gradient) continue;
    run.AddWeightGradient(op.weights, piece, x_rows, accumulate);
    // A tied matrix may accumulate when the bias, which is in another bucket, does not.
    if (has_bias) run.AddBiasGradient(op.biases[0], piece, begin > 0 || run.Bound(op.biases[0]).accumulate);
    accumulate = true;
    at::Tensor dx_rows = dx.narrow(0, begin, rows);
    SegmentRun::Multiply(dx_rows, piece, weight);
  }
  if (want_gradient) run.Receive(op.inputs[0], std::move(dx));
}

at::Tensor Logits(SegmentRun& run, const model::Operator& op, const std::vector<int64_t>& rows) {
  const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(rows), at::kLong).to(run.device().torch());
  const auto& attributes = op.As<model::LinearCrossEntropyAttributes>();
  at::Tensor logits = run.Empty({index.size(0), attributes.vocab});
  SegmentRun::Multiply(logits, run.Value(op.inputs[0]).index_select(0, index), Weight(run, op).t());
  if (!op.biases.empty()) run.AddBias(logits, op.biases[0]);
  if (attributes.softcap > 0) logits.div_(attributes.softcap).tanh_().mul_(attributes.softcap);
  return logits;
}

}  // namespace

constinit const OperatorRunner kLinearCrossEntropyRunner = {.forward = Forward, .logits = Logits};

}  // namespace trainctl::nn
