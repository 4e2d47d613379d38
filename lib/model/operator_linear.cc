// y = x Wᵀ + b. The forward, the input gradient and the weight gradient are products of the same size. The
// weight gradient can be postponed. Only it reads the saved input.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  const auto& [in, out] = op.As<LinearAttributes>();
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), out)};
  op.weight_saved = {op.inputs[0]};
  op.weight_temp_bytes = WeightGradientTempBytes(segment, in * out);
}

struct Sizes {
  double tokens = 0, in = 0, out = 0;
};

Sizes SizesOf(const Segment& segment, const Operator& op) {
  const auto& [in, out] = op.As<LinearAttributes>();
  return {static_cast<double>(NumRows(segment, op)), static_cast<double>(in), static_cast<double>(out)};
}

// Returns the work of one product that moves `extra_bytes` in addition to its two activations.
Work ProductWork(const Segment& segment, const Operator& op, double extra_bytes, const Product& product) {
  const auto& [n, in, out] = SizesOf(segment, op);
  Work work;
  work[Resource::kMatmulFlops] = 2 * n * in * out;
  work[Resource::kOperandBytes] = (n * in + n * out) * ElementBytes(segment) + extra_bytes;
  work[Resource::kOperators] = 1;
  work.products = {{product}};
  return work;
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  const auto& [n, in, out] = SizesOf(segment, op);
  const double element = ElementBytes(segment);
  if (pass == Pass::kWeightGradient) {
    const double bytes = WeightGradientBytes(segment, in * out, accumulate);
    return ProductWork(segment, op, bytes, {segment.dtype, out, n, in, bytes / (in * out)});
  }
  const bool forward = pass == Pass::kForward;
  return ProductWork(segment, op, in * out * element,
                     {segment.dtype, n, forward ? in : out, forward ? out : in, element});
}

}  // namespace

constinit const OperatorEntry kLinearOperator = {
    .name = "linear",
    .passes = {Pass::kForward, Pass::kInputGradient, Pass::kWeightGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
