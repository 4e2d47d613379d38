// y += b, in place. What ranks have summed gets it once, so it is no part of the product before.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

double Hidden(const Operator& op) { return static_cast<double>(op.As<BiasAttributes>().hidden); }

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<BiasAttributes>().hidden)};
  op.in_place_of = op.inputs[0];
  op.input_gradient = InputGradient::kShareOutputGradient;
}

Work ForwardWork(const Segment& segment, const Operator& op) {
  return PassOverRows(segment, op, 2 * Hidden(op));
}

Work GradientWork(const Segment& segment, const Operator& op, bool accumulate) {
  return PassOverRows(segment, op, Hidden(op));
}

}  // namespace

constinit const OperatorEntry kBiasOperator = {
    .name = "bias",
    .complete = Complete,
    .forward_work = ForwardWork,
    .input_gradient_work = GradientWork,
};

}  // namespace trainctl::model
