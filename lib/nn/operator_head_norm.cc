#include <utility>

#include "nn/norm_gradient.h"
#include "nn/operators.h"

namespace trainctl::nn {
namespace {

// The heads of queries or of keys.
struct Heads {
  int64_t first_col = 0;
  int64_t count = 0;
  int weight = 0;  // position in Graph::Block::parameters
  int rstd = 0;    // value id
};

std::pair<Heads, Heads> QueriesAndKeys(const model::Operator& op) {
  const auto& a = op.As<model::HeadNormAttributes>();
  return {{.first_col = 0, .count = a.heads, .weight = op.weights[0], .rstd = op.outputs[2]},
          {.first_col = a.heads * a.head_dim,
           .count = a.kv_heads,
           .weight = op.weights[1],
           .rstd = op.outputs[3]}};
}

void* Element(const at::Tensor& tensor, int64_t row, int64_t col) {
  return static_cast<char*>(SegmentRun::Row(tensor, row)) + col * static_cast<int64_t>(tensor.itemsize());
}

void Forward(SegmentRun& run, const model::Operator& op) {
  const auto& a = op.As<model::HeadNormAttributes>();
  const at::Tensor& qkv = run.Value(op.outputs[0]);
  at::Tensor& input = run.Value(op.outputs[1]);
  input.copy_(qkv.narrow(1, 0, input.size(1)));
  const auto [queries, keys] = QueriesAndKeys(op);
  for (const Heads& heads : {queries, keys}) {
    run.ForRows([&](int64_t begin, int64_t end, int) {
      run.typed().rms_norm_heads(
          Element(qkv, begin, heads.first_col), SegmentRun::Row(run.Value(heads.rstd), begin),
          Element(input, begin, heads.first_col), run.Bound(heads.weight).data, a.gain,
          static_cast<float>(a.eps), end - begin, heads.count, a.head_dim, qkv.stride(0), input.stride(0));
    });
  }
}

// Overwrites the gradient of the output.
void InputGradient(SegmentRun& run, const model::Operator& op) {
  const auto& a = op.As<model::HeadNormAttributes>();
  at::Tensor gradient = std::move(run.Gradient(op.outputs[0]));
  SegmentRun::MakeExclusive(gradient);
  const at::Tensor& input = run.Value(op.outputs[1]);
  const auto [queries, keys] = QueriesAndKeys(op);
  for (const Heads& heads : {queries, keys}) {
    VectorGradient weight(run, heads.weight, a.head_dim);
    run.ForRows([&](int64_t begin, int64_t end, int chunk) {
      void* rows = Element(gradient, begin, heads.first_col);
      run.typed().rms_norm_heads_backward(
          rows, weight.ForChunk(chunk), rows, Element(input, begin, heads.first_col),
          SegmentRun::Row(run.Value(heads.rstd), begin), run.Bound(heads.weight).data, a.gain, end - begin,
          heads.count, a.head_dim, gradient.stride(0), input.stride(0));
    });
    weight.Finish();
  }
  run.Receive(op.inputs[0], std::move(gradient));
}

}  // namespace

constinit const OperatorRunner kHeadNormRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
