// Runs segments (model/segment.h) with tensors on a device: forward, backward in one or two passes, and for
// the head, loss and gradient in one pass. There is no autograd. The segment's table determines which
// activations are saved and when memory is released, and model::Analyze() counts the same bytes. operators.h
// runs the operators.
//
// Shapes: n = batch * seq_len tokens; activations are [n, hidden] in the compute dtype, or [n / ranks,
// hidden] between blocks with sequence parallelism. Here a segment has at most one input and one output. ATen
// multiplies matrices, except on some CPUs (bf16_product.h). attention.h describes attention, and the
// device's kernels do almost everything else. All memory is the device's, and work is queued on the calling
// thread's stream.
//
// With a TensorGroup, every pass is collective over that group; otherwise a runner involves only this rank.
// One thread at a time may use a runner. Failures are exceptions (ATen's, or OperatorFailed), which
// lib/parallel catches.
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

// The operands of weight gradients, kept between the two passes of a backward, by value id.
struct WeightQueue {
  Saved values;            // activations that weight gradients read
  Saved output_gradients;  // gradients of their operators' outputs
};

// Total seconds of operators, indexed by OpKind. For the head, the product and the loss count as forward,
// including their gradients.
struct OperatorSeconds {
  std::array<double, model::kNumOpKinds> forward = {};
  std::array<double, model::kNumOpKinds> backward = {};
};

class SegmentRunner {
 public:
  // `rope` is the array of angle tables that the segment's operators index, usually one. `tensor` is the
  // group of ranks that split the segment, or null if it is not split. `device`, `rope` and `tensor` must
  // outlive the runner.
  SegmentRunner(const device::Device& device, model::Segment segment, const RopeTables* rope, int threads,
                TensorGroup* tensor = nullptr);

  const model::Segment& segment() const { return segment_; }

  // Adds the time of every operator to `seconds` from now on; `seconds` must outlive this. Use it only on the
  // CPU, because on a device it would measure the time to queue the work.
  void MeasureInto(OperatorSeconds* seconds) { seconds_ = seconds; }

  // Makes every operator wait until its work on the device is complete, so that OperatorFailed names the
  // operator of a failing kernel.
  void CheckOperators() { checks_ = true; }

  // Returns the output. Stores the activations that backward needs in `saved`; keeps nothing if `saved` is
  // null.
  at::Tensor Forward(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
                     Saved* saved) const;

  // Activation recompute: returns the same activations as Forward saves, bit for bit. Skips the operators
  // that only the output needs.
  Saved Recompute(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view) const;

  // Runs the forward of new tokens of one sequence that follow those in `cache`, and appends their keys and
  // values. The segment's shape counts only the new tokens, and `view` has their positions. Only for blocks
  // between the embedding and the head, in which only attention looks at other tokens.
  at::Tensor Continue(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
                      KeyValueCache& cache) const;

  // Consumes `saved` and `output_gradient`, and adds to the parameters' gradients. Returns the gradient of
  // the input, which is an undefined tensor for the embedding.
  at::Tensor Backward(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
                      Saved saved, at::Tensor output_gradient) const;

  // A backward in two passes, with the same bits as Backward. BackwardInput consumes `saved` and
  // `output_gradient`, adds to the gradients of norms, biases and the embedding, fills `queue`, and returns
  // the gradient of the input. BackwardWeight may run at any later time and adds to the gradients of
  // matrices; of `parameters` it reads only the gradient pointers. Not for the head.
  at::Tensor BackwardInput(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
                           Saved saved, at::Tensor output_gradient, WeightQueue& queue) const;
  void BackwardWeight(const BoundParameters& parameters, WeightQueue queue) const;

  // Only for the head. Adds the loss, summed over unmasked targets, to *loss, adds to the parameters'
  // gradients, and returns the gradient of the input. Gradients are multiplied by *scale (1 / global number
  // of loss tokens). `scale` and `loss` are in device memory.
  at::Tensor LossAndGradient(const BoundParameters& parameters, const at::Tensor& input,
                             const TokenView& view, float z_loss, const float* scale, double* loss) const;
  // Only for the head. Adds the loss to *loss as above, but without z-loss and without gradients.
  void Loss(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
            double* loss) const;
  // Only for the head. Returns the logits of the given rows of `input`, [rows, vocab], in the compute dtype.
  at::Tensor Logits(const BoundParameters& parameters, const at::Tensor& input,
                    const std::vector<int64_t>& rows) const;

 private:
  class Pass;
  const device::Device& device_;
  model::Segment segment_;
  model::Lifetimes lifetimes_;
  size_t num_that_save_;  // number of operators up to the last one whose output is saved
  std::vector<int> roots_;
  const RopeTables* rope_;
  int threads_;
  TensorGroup* tensor_;
  OperatorSeconds* seconds_ = nullptr;
  bool checks_ = false;
};

}  // namespace trainctl::nn
