// y += b, in place. Used after a sum over ranks, which must get the bias only once, so the product before the
// sum cannot add it.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

double Hidden(const Operator& op) { return static_cast<double>(op.As<BiasAttributes>().hidden); }

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<BiasAttributes>().hidden)};
  op.in_place_of = op.inputs[0];
  op.input_gradient = InputGradient::kShareOutputGradient;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  return PassOverRows(segment, op, (pass == Pass::kForward ? 2 : 1) * Hidden(op));
}

}  // namespace

constinit const OperatorEntry kBiasOperator = {
    .name = "bias",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
