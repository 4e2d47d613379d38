// activation(gate) * up, as in SwiGLU (Shazeer 2020, arXiv 2002.05202). The gradient overwrites the saved
// input.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

double Ffn(const Operator& op) { return static_cast<double>(op.As<SwiGluAttributes>().ffn); }

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<SwiGluAttributes>().ffn)};
  op.saved = {op.inputs[0]};
  op.input_gradient = InputGradient::kReuseSavedInput;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  return PassOverRows(segment, op, (pass == Pass::kForward ? 3 : 5) * Ffn(op));
}

}  // namespace

constinit const OperatorEntry kSwiGluOperator = {
    .name = "swiglu",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
