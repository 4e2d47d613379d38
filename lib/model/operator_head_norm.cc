// RMSNorm of queries and keys in place on a fused qkv activation: of each head (Henry et al. 2020, arXiv
// 2010.04245; Dehghani et al. 2023, arXiv 2302.05442) or over all heads (OLMo 2, arXiv 2501.00656). Does not
// change the values. The backward needs the input, which cannot be computed from the output if a weight is
// zero, so queries and keys are copied first.
//
// With tensor parallelism, norms over all heads gather the ranks' sums of each row: of squares in the
// forward, and of products with the gradient in the backward.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "model/operator_common.h"

namespace trainctl::model {
namespace {

// Returns the number of normalized elements per row.
int64_t Cols(const HeadNormAttributes& a) { return (a.heads + a.kv_heads) * a.head_dim; }

bool HasExchanges(const Segment& segment, const HeadNormAttributes& a) {
  return a.whole && segment.tensor.ranks > 1;
}

int64_t SumBytes(const Segment& segment, int64_t rows) {
  return rows * kHeadNormSums * AccumulatorBytes(segment);
}

void Complete(Segment& segment, Operator& op, const std::string& name) {
  const auto& a = op.As<HeadNormAttributes>();
  const int64_t rows = NumRows(segment, op);
  const int input = AppendValue(segment, name + "_input", rows, Cols(a));
  const DType accumulator = AccumulatorOf(segment.dtype);
  const int query_rstd = AppendValue(segment, name + "_query_rstd", accumulator, rows, a.whole ? 1 : a.heads);
  const int key_rstd = AppendValue(segment, name + "_key_rstd", accumulator, rows, a.whole ? 1 : a.kv_heads);
  const int output = AppendValue(segment, name, rows, (a.heads + 2 * a.kv_heads) * a.head_dim);
  op.outputs = {output, input, query_rstd, key_rstd};
  op.saved = {input, query_rstd, key_rstd};
  op.in_place_of = op.inputs[0];
  op.input_gradient = InputGradient::kReuseOutputGradient;
  if (!HasExchanges(segment, a)) return;
  // While sums are exchanged: those of this rank, a copy of them in one tensor, those of all ranks, and the
  // totals. Before and after: copies of the queries in the accumulator type, one in the forward; input,
  // gradient and a product in the backward, which is then summed over the rows.
  const int64_t sums = SumBytes(segment, rows);
  const int64_t exchanged = (segment.tensor.ranks + 3) * sums;
  const int64_t row = a.heads * a.head_dim * AccumulatorBytes(segment);
  op.forward_temp_bytes = std::max(exchanged, sums + rows * row);
  op.backward_temp_bytes = std::max(exchanged, sums + 3 * rows * row + row);
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  const double cols = static_cast<double>(Cols(op.As<HeadNormAttributes>()));
  // The copy reads and writes each element, and so does each norm.
  Work work = PassOverRows(segment, op, (pass == Pass::kForward ? 4 : 3) * cols);
  work[Resource::kOperators] = pass == Pass::kForward ? 3 : 2;
  if (pass != Pass::kForward && segment.on_device && !accumulate) work[Resource::kOperators] += 2;
  return work;
}

void Exchanges(const Segment& segment, const Operator& op, Pass pass, std::vector<OperatorExchange>& list) {
  if (!HasExchanges(segment, op.As<HeadNormAttributes>())) return;
  list.push_back(
      {.name = HeadNormExchangeName(segment, op, pass),
       .collective = Collective::kAllGather,
       .bytes = static_cast<double>(segment.tensor.ranks * SumBytes(segment, NumRows(segment, op)))});
}

}  // namespace

std::string HeadNormExchangeName(const Segment& segment, const Operator& op, Pass pass) {
  const std::string& name = segment.values[static_cast<size_t>(op.outputs[0])].name;
  return absl::StrCat(pass == Pass::kForward ? "sums of " : "sums of the gradient of ", name);
}

constinit const OperatorEntry kHeadNormOperator = {
    .name = "head norm",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
    .exchanges = Exchanges,
};

}  // namespace trainctl::model
