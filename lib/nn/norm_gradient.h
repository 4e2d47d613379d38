// Gradients of norms: of the vectors that all rows share, and of the input. Not thread-safe, except
// VectorGradient::ForChunk.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/segment_run.h"

namespace trainctl::nn {

// The gradient of a vector that all rows share, such as the weight of a norm. On the CPU, each chunk of rows
// has its own sum (SegmentRun::ForChunks), and the sums are added in the order of the chunks.
class VectorGradient {
 public:
  // `parameter` is a position in Graph::Block::parameters, and has `numel` elements. Clears the gradient if
  // the parameter does not accumulate. The run must outlive this object.
  VectorGradient(const SegmentRun& run, int parameter, int64_t numel)
      : run_(run), numel_(numel), gradient_(run.Bound(parameter).gradient) {
    const int64_t bytes = numel * run.accumulator_bytes();
    if (!run.Bound(parameter).accumulate) run.device().Zero(gradient_, bytes);
    if (run.device().is_cpu()) sums_.assign(static_cast<size_t>(run.NumChunks() * bytes), 0);
  }

  // Returns the accumulators to which the rows of a chunk are added.
  void* ForChunk(int chunk) {
    return sums_.empty() ? gradient_ : sums_.data() + chunk * numel_ * run_.accumulator_bytes();
  }

  // Call this once, after all chunks.
  void Finish() {
    if (sums_.empty()) return;
    for (int chunk = 0; chunk < run_.NumChunks(); ++chunk)
      run_.sums().accumulate(gradient_, ForChunk(chunk), numel_);
  }

 private:
  const SegmentRun& run_;
  const int64_t numel_;
  void* const gradient_;
  std::vector<char> sums_;  // by chunk; empty on a device, which adds directly to the gradient
};

// Returns the tensor for the gradient of a norm's input, and whether the norm adds to it. If no other
// operator has contributed, it is the storage of the output's gradient, or new storage if anything else
// refers to the output's gradient.
struct NormInputGradient {
  at::Tensor& dx;
  bool add;
};
inline NormInputGradient PrepareNormGradient(SegmentRun& run, const model::Operator& op) {
  at::Tensor& dx = run.Gradient(op.inputs[0]);
  if (dx.defined()) {
    SegmentRun::MakeExclusive(dx);
    return {dx, true};
  }
  const at::Tensor& dy = run.Gradient(op.outputs[0]);
  dx = dy.use_count() > 1 ? at::empty_like(dy) : dy;
  return {dx, false};
}

}  // namespace trainctl::nn
