// Multiplication by a constant, in place, forward and backward.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<ScaleAttributes>().cols)};
  op.in_place_of = op.inputs[0];
  op.input_gradient = InputGradient::kReuseOutputGradient;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass, bool) {
  return PassOverRows(segment, op, 2 * static_cast<double>(op.As<ScaleAttributes>().cols));
}

}  // namespace

constinit const OperatorEntry kScaleOperator = {
    .name = "scale",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
