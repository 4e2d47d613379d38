// Rotary positions (Su et al. 2021, arXiv 2104.09864), in place over a fused qkv activation. The gradient is
// rotated back by the same angles, in place as well, so nothing is saved. Next to attention, whose backward
// writes that gradient, both are one pass (peepholes.h).

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<RopeAttributes>().row)};
  op.in_place_of = op.inputs[0];
  op.input_gradient = InputGradient::kReuseOutputGradient;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  if (op.with_next.Has(pass)) return {};  // attention counts it
  return PassOverRows(segment, op, 2.0 * static_cast<double>(op.As<RopeAttributes>().row));
}

}  // namespace

constinit const OperatorEntry kRopeOperator = {
    .name = "rope",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
