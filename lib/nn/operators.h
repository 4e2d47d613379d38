// Runs each kind of operator of model/operators.h with tensors. The forward and the hand-written derivatives
// of a kind are in operator_<kind>.cc. The segment's table determines what is allocated, released and queued
// around them (segment_runner.cc).
#pragma once

#include <vector>

#include "model/operators.h"
#include "nn/segment_run.h"

namespace trainctl::nn {

struct OperatorRunner {
  // Computes the outputs, which are already allocated. A loss adds to *run.loss().sum, and forms all
  // gradients if run.loss().scale is not null.
  void (*forward)(SegmentRun& run, const model::Operator& op);
  // Runs the forward of this operator and the next one as one pass, for pairs of model/peepholes.h. Null if
  // the kind is never the first of such a pair.
  void (*forward_with_next)(SegmentRun& run, const model::Operator& op,
                            const model::Operator& next) = nullptr;
  // Reads the gradients of the outputs and produces the gradients of the inputs. May overwrite the gradients
  // of the outputs if nothing else refers to them. Also adds the gradients of norms, biases and the
  // embedding. Null if the forward forms all gradients (a loss).
  void (*input_gradient)(SegmentRun& run, const model::Operator& op);
  // Runs input_gradient of this operator and the previous one as one pass, and produces the gradients of the
  // previous operator's inputs. Null if the kind is never the second of such a pair.
  void (*input_gradient_with_previous)(SegmentRun& run, const model::Operator& previous,
                                       const model::Operator& op) = nullptr;
  // Adds the gradient of the weight matrix. Writes nothing else, so it can run before input_gradient or at
  // any later time. Null if the kind has no such pass.
  void (*weight_gradient)(SegmentRun& run, const model::Operator& op);
  // Returns the logits of the given rows, [rows, vocab], in the compute dtype. Null unless the kind is a
  // loss.
  at::Tensor (*logits)(SegmentRun& run, const model::Operator& op, const std::vector<int64_t>& rows);
};
extern const OperatorRunner kEmbeddingRunner, kRmsNormRunner, kLinearRunner, kRopeRunner, kAttentionRunner,
    kSwiGluRunner, kAddRunner, kLinearCrossEntropyRunner, kBiasRunner, kTensorExchangeRunner,
    kLayerNormRunner, kHeadNormRunner, kActivationRunner, kScaleRunner, kPositionsRunner;
// The runner of each kind, indexed by OpKind.
inline constexpr const OperatorRunner* kRunners[model::kNumOpKinds] = {
    &kEmbeddingRunner,  &kRmsNormRunner,        &kLinearRunner,    &kRopeRunner,
    &kAttentionRunner,  &kSwiGluRunner,         &kAddRunner,       &kLinearCrossEntropyRunner,
    &kBiasRunner,       &kTensorExchangeRunner, &kLayerNormRunner, &kHeadNormRunner,
    &kActivationRunner, &kScaleRunner,          &kPositionsRunner};

inline const OperatorRunner& RunnerOf(const model::Operator& op) {
  return *kRunners[static_cast<size_t>(op.kind)];
}

}  // namespace trainctl::nn
