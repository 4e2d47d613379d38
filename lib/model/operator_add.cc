// Residual addition. The inputs are (stream, update), and the sum reuses the update's storage. The gradient
// of both inputs is that of the output, so the backward moves no data.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<AddAttributes>().hidden)};
  op.in_place_of = op.inputs[1];
  op.input_gradient = InputGradient::kShareOutputGradient;
}

// The backward has no work: it passes the same gradient to both inputs.
Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  if (pass != Pass::kForward) return {};
  const auto hidden = static_cast<double>(op.As<AddAttributes>().hidden);
  Work work = PassOverRows(segment, op, 3 * hidden);
  if (op.with_next.Has(pass)) {  // the norm's work includes the launch and a read of the sum
    work[Resource::kOperators] = 0;
    work[Resource::kMovedBytes] -= PassOverRows(segment, op, hidden)[Resource::kMovedBytes];
  }
  return work;
}

}  // namespace

constinit const OperatorEntry kAddOperator = {
    .name = "add",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
