// (x - mean) / deviation * w + b, with or without b (Ba et al. 2016, arXiv 1607.06450). Saves its input, and
// a mean and a reciprocal deviation per row.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

double Hidden(const Operator& op) { return static_cast<double>(op.As<LayerNormAttributes>().hidden); }

void Complete(Segment& segment, Operator& op, const std::string& name) {
  const int64_t rows = NumRows(segment, op);
  const DType accumulator = AccumulatorOf(segment.dtype);
  const int mean = AppendValue(segment, name + "_mean", accumulator, rows, 1);
  const int rstd = AppendValue(segment, name + "_rstd", accumulator, rows, 1);
  const int output = AppendValue(segment, name, rows, op.As<LayerNormAttributes>().hidden);
  op.outputs = {output, mean, rstd};
  op.saved = {op.inputs[0], mean, rstd};
  op.input_gradient = InputGradient::kReuseOutputGradient;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  if (pass == Pass::kForward) return PassOverRows(segment, op, 2 * Hidden(op));
  Work work = PassOverRows(segment, op, 4 * Hidden(op));
  const double parameters = static_cast<double>(op.weights.size() + op.biases.size());
  if (segment.on_device && !accumulate) work[Resource::kOperators] += parameters;  // gradients are cleared
  return work;
}

}  // namespace

constinit const OperatorEntry kLayerNormOperator = {
    .name = "layer norm",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
