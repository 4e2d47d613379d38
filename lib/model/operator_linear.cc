// y = x Wᵀ + b. Of three products of the same size, the gradient of W is the one that can wait: it reads the
// saved input, which the input's gradient does not.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  const auto& [in, out] = op.As<LinearAttributes>();
  op.outputs = {AppendValue(segment, name, out)};
  op.weight_saved = {op.inputs[0]};
  op.weight_temp_bytes = WeightGradientTempBytes(segment, in * out);
}

// One product, with `extra_bytes` to read and write beside its two activations.
Work ProductWork(const Segment& segment, const Operator& op, double extra_bytes) {
  const double n = Tokens(segment);
  const double in = static_cast<double>(op.As<LinearAttributes>().in);
  const double out = static_cast<double>(op.As<LinearAttributes>().out);
  Work work;
  work[Resource::kMatmulFlops] = 2 * n * in * out;
  work[Resource::kOperandBytes] = (n * in + n * out) * ElementBytes(segment) + extra_bytes;
  work[Resource::kOperators] = 1;
  return work;
}

double WeightNumel(const Operator& op) {
  const auto& [in, out] = op.As<LinearAttributes>();
  return static_cast<double>(in) * static_cast<double>(out);
}

Work ForwardWork(const Segment& segment, const Operator& op) {
  return ProductWork(segment, op, WeightNumel(op) * ElementBytes(segment));
}

Work InputGradientWork(const Segment& segment, const Operator& op, bool accumulate) {
  return ProductWork(segment, op, WeightNumel(op) * ElementBytes(segment));
}

Work WeightGradientWork(const Segment& segment, const Operator& op, bool accumulate) {
  return ProductWork(segment, op, WeightGradientBytes(segment, WeightNumel(op), accumulate));
}

}  // namespace

constinit const OperatorEntry kLinearOperator = {
    .name = "linear",
    .complete = Complete,
    .forward_work = ForwardWork,
    .input_gradient_work = InputGradientWork,
    .weight_gradient_work = WeightGradientWork,
};

}  // namespace trainctl::model
