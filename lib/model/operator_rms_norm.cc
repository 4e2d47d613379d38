// x / rms(x) * w (Zhang & Sennrich 2019, arXiv 1910.07467). Saves its input and a reciprocal norm per row.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

double Hidden(const Operator& op) { return static_cast<double>(op.As<RmsNormAttributes>().hidden); }

void Complete(Segment& segment, Operator& op, const std::string& name) {
  const int rstd =
      AppendValue(segment, name + "_rstd", AccumulatorOf(segment.dtype), NumRows(segment, op), 1);
  const int output = AppendValue(segment, name, NumRows(segment, op), op.As<RmsNormAttributes>().hidden);
  op.outputs = {output, rstd};
  op.saved = {op.inputs[0], rstd};
  op.input_gradient = InputGradient::kReuseOutputGradient;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  if (pass == Pass::kForward) return PassOverRows(segment, op, 2 * Hidden(op));
  Work work = PassOverRows(segment, op, 4 * Hidden(op));
  if (segment.on_device && !accumulate) work[Resource::kOperators] += 1;  // the weight's gradient is cleared
  return work;
}

}  // namespace

constinit const OperatorEntry kRmsNormOperator = {
    .name = "rms norm",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
