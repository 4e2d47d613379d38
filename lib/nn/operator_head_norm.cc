
#include <array>
#include <utility>

#include "device/aten.h"
#include "nn/norm_gradient.h"
#include "nn/operators.h"

namespace trainctl::nn {
namespace {

// The norms of queries or of keys.
struct Norms {
  int64_t first_col = 0;
  int64_t count = 0;  // norms per row
  int64_t dim = 0;    // elements of each
  int weight = 0;     // position in Graph::Block::parameters
  int rstd = 0;       // value id
};

std::array<Norms, model::kHeadNormSums> QueriesAndKeys(const model::Operator& op) {
  const auto& a = op.As<model::HeadNormAttributes>();
  const auto norms = [&](int64_t first_col, int64_t heads, size_t which) {
    return Norms{.first_col = first_col,
                 .count = a.whole ? 1 : heads,
                 .dim = a.whole ? heads * a.head_dim : a.head_dim,
                 .weight = op.weights[which],
                 .rstd = op.outputs[2 + which]};
  };
  return {norms(0, a.heads, 0), norms(a.heads * a.head_dim, a.kv_heads, 1)};
}

bool IsOverRanks(const SegmentRun& run, const model::Operator& op) {
  return op.As<model::HeadNormAttributes>().whole && run.segment().tensor.ranks > 1;
}

void* Element(const at::Tensor& tensor, int64_t row, int64_t col) {
  return static_cast<char*>(SegmentRun::Row(tensor, row)) + col * static_cast<int64_t>(tensor.itemsize());
}

// ---- one norm over the heads of all ranks ----------------------------------------------------------
//
// In PyTorch's operators, because the kernels compute a norm whole. An element of a row is x, its gain g, the
// gradient of its output dy, and r = 1 / sqrt(mean(x^2) + eps) over the d elements of the row in all ranks.

// Returns the sums over all ranks of each row's sums [2, rows].
at::Tensor SumOverRanks(SegmentRun& run, const model::Operator& op, model::Pass pass,
                        const std::array<at::Tensor, model::kHeadNormSums>& own) {
  const at::Tensor part = at::stack({own[0], own[1]}).unsqueeze(0);
  at::Tensor all = at::empty({run.tensor().size(), part.size(1), part.size(2)}, part.options());
  run.tensor().GatherRows(model::HeadNormExchangeName(run.segment(), op, pass), part, all);
  return all.sum(0);
}

// Returns a copy of the columns of `norms`, in the accumulator type.
at::Tensor Wide(const at::Tensor& rows, const Norms& norms) {
  return rows.narrow(1, norms.first_col, norms.dim)
      .to(AccumulatorOf(rows.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
}

at::Tensor GainOf(const SegmentRun& run, const Norms& norms, kernels::Gain gain) {
  const at::Tensor weight =
      run.device()
          .View(const_cast<void*>(static_cast<const void*>(run.Bound(norms.weight).data)), {norms.dim},
                run.dtype())
          .to(AccumulatorOf(run.dtype()));
  return gain == kernels::Gain::kOnePlusWeight ? weight + 1 : weight;
}

void ForwardOverRanks(SegmentRun& run, const model::Operator& op) {
  const auto& a = op.As<model::HeadNormAttributes>();
  const at::Tensor& qkv = run.Value(op.outputs[0]);
  const at::Tensor& input = run.Value(op.outputs[1]);
  const auto both = QueriesAndKeys(op);
  const auto squares_of = [&](const Norms& norms) { return Wide(input, norms).square_().sum(1); };
  const at::Tensor squares =
      SumOverRanks(run, op, model::Pass::kForward, {squares_of(both[0]), squares_of(both[1])});
  for (size_t i = 0; i < both.size(); ++i) {
    at::Tensor& rstd = run.Value(both[i].rstd);
    const auto dim = static_cast<double>(both[i].dim * run.tensor().size());
    rstd.copy_(squares.select(0, static_cast<int64_t>(i))
                   .div(dim)
                   .add_(static_cast<float>(a.eps))
                   .rsqrt_()
                   .unsqueeze(1));
    at::Tensor y = Wide(input, both[i]).mul_(rstd).mul_(GainOf(run, both[i], a.gain));
    qkv.narrow(1, both[i].first_col, both[i].dim).copy_(y);
  }
}

// dx = r (dy g - x r^2 sum(dy g x) / d), and dg = sum over the rows of dy x r.
void InputGradientOverRanks(SegmentRun& run, const model::Operator& op, at::Tensor& gradient) {
  const auto& a = op.As<model::HeadNormAttributes>();
  const at::Tensor& input = run.Value(op.outputs[1]);
  const auto both = QueriesAndKeys(op);
  const auto dots = [&](const Norms& norms) {
    return Wide(gradient, norms).mul_(GainOf(run, norms, a.gain)).mul_(Wide(input, norms)).sum(1);
  };
  const at::Tensor sums = SumOverRanks(run, op, model::Pass::kInputGradient, {dots(both[0]), dots(both[1])});
  for (size_t i = 0; i < both.size(); ++i) {
    const Norms& norms = both[i];
    const at::Tensor& rstd = run.Value(norms.rstd);
    const auto dim = static_cast<double>(norms.dim * run.tensor().size());
    at::Tensor normed = Wide(input, norms).mul_(rstd);
    at::Tensor dy = Wide(gradient, norms);
    VectorGradient weight(run, norms.weight, norms.dim);
    run.device().View(weight.ForChunk(0), {norms.dim}, dy.scalar_type()).add_(dy.mul(normed).sum(0));
    weight.Finish();
    const at::Tensor mean = sums.select(0, static_cast<int64_t>(i)).div(dim).unsqueeze(1).mul_(rstd);
    dy.mul_(GainOf(run, norms, a.gain)).sub_(normed.mul_(mean)).mul_(rstd);
    gradient.narrow(1, norms.first_col, norms.dim).copy_(dy);
  }
}

// ---- passes ----------------------------------------------------------------------------------------

void Forward(SegmentRun& run, const model::Operator& op) {
  const auto& a = op.As<model::HeadNormAttributes>();
  const at::Tensor& qkv = run.Value(op.outputs[0]);
  at::Tensor& input = run.Value(op.outputs[1]);
  input.copy_(qkv.narrow(1, 0, input.size(1)));
  if (IsOverRanks(run, op)) return ForwardOverRanks(run, op);
  for (const Norms& norms : QueriesAndKeys(op)) {
    run.ForRows([&](int64_t begin, int64_t end, int) {
      run.typed().rms_norm_heads(
          Element(qkv, begin, norms.first_col), SegmentRun::Row(run.Value(norms.rstd), begin),
          Element(input, begin, norms.first_col), run.Bound(norms.weight).data, a.gain,
          static_cast<float>(a.eps), end - begin, norms.count, norms.dim, qkv.stride(0), input.stride(0));
    });
  }
}

// Overwrites the gradient of the output.
void InputGradient(SegmentRun& run, const model::Operator& op) {
  const auto& a = op.As<model::HeadNormAttributes>();
  at::Tensor gradient = std::move(run.Gradient(op.outputs[0]));
  SegmentRun::MakeExclusive(gradient);
  if (IsOverRanks(run, op)) {
    InputGradientOverRanks(run, op, gradient);
    return run.Receive(op.inputs[0], std::move(gradient));
  }
  const at::Tensor& input = run.Value(op.outputs[1]);
  for (const Norms& norms : QueriesAndKeys(op)) {
    VectorGradient weight(run, norms.weight, norms.dim);
    run.ForRows([&](int64_t begin, int64_t end, int chunk) {
      void* rows = Element(gradient, begin, norms.first_col);
      run.typed().rms_norm_heads_backward(
          rows, weight.ForChunk(chunk), rows, Element(input, begin, norms.first_col),
          SegmentRun::Row(run.Value(norms.rstd), begin), run.Bound(norms.weight).data, a.gain, end - begin,
          norms.count, norms.dim, gradient.stride(0), input.stride(0));
    });
    weight.Finish();
  }
  run.Receive(op.inputs[0], std::move(gradient));
}

}  // namespace

constinit const OperatorRunner kHeadNormRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
