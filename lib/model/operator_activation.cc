// Applies an activation function to each element, in an MLP without a gate. The gradient overwrites the saved
// input.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<ActivationAttributes>().cols)};
  op.saved = {op.inputs[0]};
  op.input_gradient = InputGradient::kReuseSavedInput;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool) {
  const double cols = static_cast<double>(op.As<ActivationAttributes>().cols);
  return PassOverRows(segment, op, (pass == Pass::kForward ? 2 : 3) * cols);
}

}  // namespace

constinit const OperatorEntry kActivationOperator = {
    .name = "activation",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
