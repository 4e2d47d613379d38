#include "nn/operators.h"

namespace trainctl::nn {
namespace {

void Forward(SegmentRun& run, const model::Operator& op) {
  run.ForChunks(run.Value(op.outputs[0]).size(0), [&](int64_t begin, int64_t end, int) {
    run.typed().add(SegmentRun::Row(run.Value(op.outputs[0]), begin),
                    SegmentRun::Row(run.Value(op.inputs[0]), begin),
                    (end - begin) * op.As<model::AddAttributes>().hidden);
  });
}

void InputGradient(SegmentRun& run, const model::Operator& op) {
  for (int input : op.inputs) run.Receive(input, run.Gradient(op.outputs[0]));
}

}  // namespace

constinit const OperatorRunner kAddRunner = {.forward = Forward, .input_gradient = InputGradient};

}  // namespace trainctl::nn
