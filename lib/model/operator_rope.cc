// Rotary position embedding (Su et al. 2021, arXiv 2104.09864), in place on a fused qkv activation. The
// backward rotates the gradient back by the same angles, also in place, so nothing is saved. If attention
// follows, its backward writes that gradient, and both are fused into one pass (peepholes.h).

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<RopeAttributes>().row)};
  op.in_place_of = op.inputs[0];
  op.input_gradient = InputGradient::kReuseOutputGradient;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  if (op.with_next.Has(pass)) return {};  // included in the work of attention
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
