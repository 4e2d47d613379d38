// Looks up rows of a table by token id. The backward adds each gradient to its token's row.

#include "model/operator_common.h"

namespace trainctl::model {
namespace {

void Complete(Segment& segment, Operator& op, const std::string& name) {
  op.outputs = {AppendValue(segment, name, NumRows(segment, op), op.As<EmbeddingAttributes>().hidden)};
  op.input_gradient = InputGradient::kNone;
  if (segment.tensor.ranks == 1) return;
  // Each token's row in this rank's part, and the mask of tokens that other ranks have (with its
  // temporaries). The backward also needs a copy of the gradient in which these tokens are cleared.
  op.forward_temp_bytes = NumRows(segment, op) * kFp32Bytes * 2;
  op.backward_temp_bytes = op.forward_temp_bytes + segment.values.back().bytes();
}

Work WorkOfPass(const Segment& segment, const Operator& op, Pass pass, bool accumulate) {
  const auto& attributes = op.As<EmbeddingAttributes>();
  const double cols = static_cast<double>(attributes.hidden);
  if (pass == Pass::kForward) return PassOverRows(segment, op, 2.0 * cols);
  const double cleared =
      accumulate ? 0 : static_cast<double>(attributes.vocab * AccumulatorBytes(segment)) * cols;
  Work work;
  work[Resource::kOperators] = segment.on_device && !accumulate ? 2 : 1;
  work[Resource::kMovedBytes] =
      cleared +
      Tokens(segment) * cols * (ElementBytes(segment) + static_cast<double>(2 * AccumulatorBytes(segment)));
  return work;
}

}  // namespace

constinit const OperatorEntry kEmbeddingOperator = {
    .name = "embedding",
    .passes = {Pass::kForward, Pass::kInputGradient},
    .complete = Complete,
    .work = WorkOfPass,
};

}  // namespace trainctl::model
