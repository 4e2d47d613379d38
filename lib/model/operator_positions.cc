// Learned positions (Radford et al. 2019): adds a row of a table to each token, in place.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<PositionsAttributes>().hidden)};
  op.in_place_of = op.inputs[0];
  op.input_gradient = InputGradient::kShareOutputGradient;
  op.forward_temp_bytes = segment.values.back().bytes();  // the rows, before they are added
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  const auto& attributes = op.As<PositionsAttributes>();
  const auto hidden = static_cast<double>(attributes.hidden);
  if (pass == Pass::kForward) {
    Work work = PassOverRows(segment, op, 5 * hidden);
    work[Resource::kOperators] = 2;
    return work;
  }
  const auto rows = static_cast<double>(NumRows(segment, op));
  const auto accumulator = static_cast<double>(AccumulatorBytes(segment));
  Work work;
  work[Resource::kOperators] = segment.on_device && !accumulate ? 2 : 1;
  work[Resource::kMovedBytes] = rows * hidden * (ElementBytes(segment) + 2 * accumulator);
  if (!accumulate) work[Resource::kMovedBytes] += static_cast<double>(attributes.rows) * hidden * accumulator;
  return work;
}

}  // namespace

constinit const OperatorEntry kPositionsOperator = {
    .name = "positions",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
