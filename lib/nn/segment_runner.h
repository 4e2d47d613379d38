// Runs segments (model/segment.h) with tensors on a device: forward, backward in one pass or in two, and for
// the head loss and gradient in one pass. No autograd: what is saved, what is dropped and when is the table's
// word, and Analyze() counts the same bytes. What a kind of operator does is in operators.h.
//
// Shapes: n = batch * seq_len tokens, activations [n, hidden] in the compute dtype. A segment has at most one
// input and one output here. Matrix products
// and attention are ATen's; everything else is the device's kernels. All memory is the device's, and work
// is queued on the calling thread's stream. Not collective. One thread at a time per runner. ATen throws;
// the callers of lib/parallel catch.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "device/device.h"
#include "model/segment.h"
#include "nn/bound_parameters.h"
#include "nn/key_value_cache.h"
#include "nn/rope_tables.h"
#include "nn/tensor_group.h"
#include "nn/token_view.h"

namespace trainctl::nn {

// Activations kept from forward to backward, by value id.
using Saved = std::map<int, at::Tensor>;

// What weight gradients wait for between the two passes of a backward, by value id.
struct WeightQueue {
  Saved values;            // that they read
  Saved output_gradients;  // of their operators
};

// Seconds that operators took, by OpKind, added up. The head's product and loss count as forward,
// gradients included.
struct OperatorSeconds {
  std::array<double, model::kNumOpKinds> forward = {};
  std::array<double, model::kNumOpKinds> backward = {};
};

class SegmentRunner {
 public:
  // `rope`: the tables of angles that the segment's operators count, usually one. `tensor`: the ranks between
  // which tensor parallelism cuts it; null: it is whole.
  SegmentRunner(const device::Device& device, model::Segment segment, const RopeTables* rope, int threads,
                TensorGroup* tensor = nullptr);

  const model::Segment& segment() const { return segment_; }

  // From now on the time of every operator is added to `seconds`, which must outlive this. For the CPU alone:
  // elsewhere it would be the time to queue them.
  void MeasureInto(OperatorSeconds* seconds) { seconds_ = seconds; }

  // From now on every operator waits for its work, so that OperatorFailed names the operator of a
  // failing kernel.
  void CheckOperators() { checks_ = true; }

  // Returns the output. `saved` receives what backward needs; null: nothing is kept.
  at::Tensor Forward(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
                     Saved* saved) const;

  // What Forward saves, with the same bits, without the operators that only the output needs.
  Saved Recompute(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view) const;

  // Forward of tokens of one sequence that follow those of `cache`, which gets theirs; the segment's shape
  // counts the new ones alone, and the view says their positions. For the blocks between embedding and head,
  // whose attention alone looks at other tokens.
  at::Tensor Continue(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
                      KeyValueCache& cache) const;

  // Consumes `saved` and `output_gradient`, adds to the parameters' gradients, returns the input's
  // gradient (undefined for the embedding).
  at::Tensor Backward(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
                      Saved saved, at::Tensor output_gradient) const;

  // Backward in two passes, which give the same bits as one. The first consumes `saved` and
  // `output_gradient`, adds to the gradients of norms, biases and the embedding, fills `queue` and returns
  // the input's gradient. The second, at any later time, adds to the gradients of matrices; of `parameters`
  // it needs their gradients alone. Not for the head.
  at::Tensor BackwardInput(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
                           Saved saved, at::Tensor output_gradient, WeightQueue& queue) const;
  void BackwardWeight(const BoundParameters& parameters, WeightQueue queue) const;

  // Head only. Adds the summed loss over unmasked targets to *loss; gradients are scaled by *scale (1 /
  // global loss tokens). Both are memory of the device. Returns the input's gradient.
  at::Tensor LossAndGradient(const BoundParameters& parameters, const at::Tensor& input,
                             const TokenView& view, float z_loss, const float* scale, double* loss) const;
  // Head only, no gradient. Adds to *loss likewise.
  void Loss(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
            double* loss) const;
  // Head only: logits of the given rows, [rows, vocab] in the compute dtype.
  at::Tensor Logits(const BoundParameters& parameters, const at::Tensor& input,
                    const std::vector<int64_t>& rows) const;

 private:
  class Pass;
  const device::Device& device_;
  model::Segment segment_;
  model::Lifetimes lifetimes_;
  size_t num_that_save_;  // operators
  std::vector<int> roots_;
  const RopeTables* rope_;
  int threads_;
  TensorGroup* tensor_;
  OperatorSeconds* seconds_ = nullptr;
  bool checks_ = false;
};

}  // namespace trainctl::nn
