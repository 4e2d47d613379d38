// Rotary positions (Su et al. 2021, arXiv 2104.09864), in place over a fused qkv activation. The gradient
// arrives turned back by the same angles, from attention, so nothing is saved or done.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<RopeAttributes>().row)};
  op.in_place_of = op.inputs[0];
  op.input_gradient = InputGradient::kShareOutputGradient;
}

Work ForwardWork(const Segment& segment, const Operator& op) {
  return PassOverRows(segment, op, 2.0 * static_cast<double>(op.As<RopeAttributes>().row));
}

Work GradientWork(const Segment& segment, const Operator& op, bool accumulate) { return {}; }

}  // namespace

constinit const OperatorEntry kRopeOperator = {
    .name = "rope",
    .complete = Complete,
    .forward_work = ForwardWork,
    .input_gradient_work = GradientWork,
};

}  // namespace trainctl::model
