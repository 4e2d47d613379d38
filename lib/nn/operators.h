// Runs the kinds of operators of model/operators.h with tensors: their derivatives are written by hand, one
// kind in operator_<kind>.cc. What is allocated, dropped and queued around them is the table's word
// (segment_runner.cc).
#pragma once

#include <vector>

#include "model/operators.h"
#include "nn/segment_run.h"

namespace trainctl::nn {

struct OperatorRunner {
  // Writes the outputs, which are allocated. A loss adds to what run.loss() says and, where asked for, forms
  // all gradients.
  void (*forward)(SegmentRun& run, const model::Operator& op);
  // The same of an operator that is one pass with the next one. Null where none is.
  void (*forward_with_next)(SegmentRun& run, const model::Operator& op,
                            const model::Operator& next) = nullptr;
  // Reads the gradients of the outputs, which may be written over where nothing else refers to them; leaves
  // the gradients of the inputs. Adds the gradients of norms, biases and the embedding. Null: formed by the
  // forward.
  void (*input_gradient)(SegmentRun& run, const model::Operator& op);
  // Adds the gradient of the matrix; writes nothing else, so that it can come before the input's gradient or
  // long after. Null where OperatorEntry::weight_gradient_work is.
  void (*weight_gradient)(SegmentRun& run, const model::Operator& op);
  // Of a loss: logits of the given rows, [rows, vocab]. Null elsewhere.
  at::Tensor (*logits)(SegmentRun& run, const model::Operator& op, const std::vector<int64_t>& rows);
};
extern const OperatorRunner kEmbeddingRunner, kRmsNormRunner, kLinearRunner, kRopeRunner, kAttentionRunner,
    kSwiGluRunner, kAddRunner, kLinearCrossEntropyRunner, kBiasRunner, kTensorExchangeRunner;
// In the order of OpKind.
inline constexpr const OperatorRunner* kRunners[model::kNumOpKinds] = {
    &kEmbeddingRunner, &kRmsNormRunner,       &kLinearRunner, &kRopeRunner,
    &kAttentionRunner, &kSwiGluRunner,        &kAddRunner,    &kLinearCrossEntropyRunner,
    &kBiasRunner,      &kTensorExchangeRunner};

inline const OperatorRunner& RunnerOf(const model::Operator& op) {
  return *kRunners[static_cast<size_t>(op.kind)];
}

}  // namespace trainctl::nn
