#include "nn/operators.h"

namespace trainctl::nn {
namespace {

// Returns the positions of this rank's rows. Sequence parallelism gives each rank a part of them.
const int32_t* PositionsOf(const SegmentRun& run, int64_t rows) {
  const model::TensorPart& part = run.segment().tensor;
  return run.view().positions + (part.cuts_sequence ? part.index * rows : 0);
}

// Returns the row of position 0 in a table with elements of `element_bytes`.
void* RowOfFirst(void* table, const model::PositionsAttributes& attributes, int64_t element_bytes) {
  return static_cast<char*>(table) + attributes.first * attributes.hidden * element_bytes;
}

void Forward(SegmentRun& run, const model::Operator& op) {
  const auto& attributes = op.As<model::PositionsAttributes>();
  const at::Tensor& sum = run.Value(op.outputs[0]);
  const int64_t rows = sum.size(0);
  const at::Tensor added = run.Empty({rows, attributes.hidden});
  const void* table = RowOfFirst(run.Bound(op.weights[0]).data, attributes, added.element_size());
  const int32_t* const positions = PositionsOf(run, rows);
  run.ForChunks(rows, [&](int64_t begin, int64_t end, int) {
    run.typed().embedding(SegmentRun::Row(added, begin), table, positions + begin, end - begin,
                          attributes.hidden);
    run.typed().add(SegmentRun::Row(sum, begin), SegmentRun::Row(added, begin),
                    (end - begin) * attributes.hidden);
  });
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  const auto& attributes = op.As<model::PositionsAttributes>();
  const BoundParameter& table = run.Bound(op.weights[0]);
  if (!table.accumulate) {
    run.device().Zero(table.gradient, attributes.rows * attributes.hidden * run.accumulator_bytes());
  }
  const at::Tensor& gradient = run.Gradient(op.outputs[0]);
  const int64_t rows = gradient.size(0);
  run.typed().embedding_backward(RowOfFirst(table.gradient, attributes, run.accumulator_bytes()),
                                 gradient.data_ptr(), PositionsOf(run, rows), rows, attributes.hidden);
  run.Receive(op.inputs[0], gradient);
}

}  // namespace

constinit const OperatorRunner kPositionsRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
