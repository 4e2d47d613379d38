// RMSNorm of each head of queries and keys (Henry et al. 2020, arXiv 2010.04245; Dehghani et al. 2023, arXiv
// 2302.05442), in place on a fused qkv activation. Does not change the values. The backward needs the input,
// which cannot be computed from the output if a weight is zero, so queries and keys are copied first.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

// Returns the number of normalized elements per row.
int64_t Cols(const HeadNormAttributes& a) { return (a.heads + a.kv_heads) * a.head_dim; }

void Complete(Segment& segment, Operator& op, const std::string& name) {
  const auto& a = op.As<HeadNormAttributes>();
  const int64_t rows = NumRows(segment, op);
  const int input = AppendValue(segment, name + "_input", rows, Cols(a));
  const DType accumulator = AccumulatorOf(segment.dtype);
  const int query_rstd = AppendValue(segment, name + "_query_rstd", accumulator, rows, a.heads);
  const int key_rstd = AppendValue(segment, name + "_key_rstd", accumulator, rows, a.kv_heads);
  const int output = AppendValue(segment, name, rows, (a.heads + 2 * a.kv_heads) * a.head_dim);
  op.outputs = {output, input, query_rstd, key_rstd};
  op.saved = {input, query_rstd, key_rstd};
  op.in_place_of = op.inputs[0];
  op.input_gradient = InputGradient::kReuseOutputGradient;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  const double cols = static_cast<double>(Cols(op.As<HeadNormAttributes>()));
  // The copy reads and writes each element, and so does each norm.
  Work work = PassOverRows(segment, op, (pass == Pass::kForward ? 4 : 3) * cols);
  work[Resource::kOperators] = pass == Pass::kForward ? 3 : 2;
  if (pass != Pass::kForward && segment.on_device && !accumulate) work[Resource::kOperators] += 2;
  return work;
}

}  // namespace

constinit const OperatorEntry kHeadNormOperator = {
    .name = "head norm",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
