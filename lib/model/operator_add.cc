// A residual: inputs are (stream, update), and the sum takes the update's storage. Both inputs' gradients are
// the output's, so the backward moves nothing.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<AddAttributes>().hidden)};
  op.in_place_of = op.inputs[1];
  op.input_gradient = InputGradient::kShareOutputGradient;
}

Work ForwardWork(const Segment& segment, const Operator& op) {
  const auto hidden = static_cast<double>(op.As<AddAttributes>().hidden);
  Work work = PassOverRows(segment, op, 3 * hidden);
  if (op.is_one_pass_with_next) {  // which counts the launch, and reads the sum
    work[Resource::kOperators] = 0;
    work[Resource::kMovedBytes] -= PassOverRows(segment, op, hidden)[Resource::kMovedBytes];
  }
  return work;
}

Work GradientWork(const Segment& segment, const Operator& op, bool accumulate) { return {}; }

}  // namespace

constinit const OperatorEntry kAddOperator = {
    .name = "add",
    .complete = Complete,
    .forward_work = ForwardWork,
    .input_gradient_work = GradientWork,
};

}  // namespace trainctl::model
