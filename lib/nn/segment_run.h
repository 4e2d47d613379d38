// The state of one run of a segment over one micro-batch, as its operators see it. It contains activations
// and gradients by value id, bound parameters, tokens, and the device with its kernels. Not thread-safe.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "device/aten.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "model/segment.h"
#include "nn/bound_parameters.h"
#include "nn/key_value_cache.h"
#include "nn/rope_tables.h"
#include "nn/tensor_group.h"
#include "nn/token_view.h"

namespace trainctl::nn {

inline at::ScalarType ToAten(DType dtype) {
  return dtype == DType::kF64 ? at::kDouble : dtype == DType::kBF16 ? at::kBFloat16 : at::kFloat;
}
// The type in which elements of type `dtype` are summed: fp64 for fp64, otherwise fp32.
inline at::ScalarType AccumulatorOf(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// The request to a loss operator. Pointers refer to device memory.
struct LossRequest {
  double* sum = nullptr;  // the loss is added to it
  float z_loss = 0;
  const float* scale = nullptr;  // factor of the gradients; null if no gradients are wanted
};

class SegmentRun {
 public:
  // `rope` is the array of tables that RopeAttributes::angle_table indexes. `tensor` is null if tensor
  // parallelism does not split the segment. All references and pointers must outlive the run.
  SegmentRun(const device::Device& device, const model::Segment& segment, const RopeTables* rope, int threads,
             const BoundParameters& parameters, const TokenView& view, TensorGroup* tensor)
      : device_(device),
        segment_(segment),
        rope_(rope),
        threads_(threads),
        parameters_(parameters),
        view_(view),
        tensor_(tensor),
        num_rows_(segment.shape.tokens()),
        values_(segment.values.size()),
        gradients_(segment.values.size()) {}

  void AskForLoss(const LossRequest& request) { loss_ = request; }
  const LossRequest& loss() const { return loss_; }

  // Sets the cache of earlier tokens that attention continues. Null (the default) if there are no earlier
  // tokens.
  void ContinueFrom(KeyValueCache* cache) { cache_ = cache; }
  KeyValueCache* cache() const { return cache_; }

  const device::Device& device() const { return device_; }
  const kernels::TypedKernels& typed() const { return device_.kernels().For(segment_.dtype); }
  // The kernels for the accumulator type.
  const kernels::TypedKernels& sums() const {
    return device_.kernels().For(trainctl::AccumulatorOf(segment_.dtype));
  }
  const model::Segment& segment() const { return segment_; }
  const TokenView& view() const { return view_; }
  const RopeTables& rope(size_t table) const { return rope_[table]; }
  // The ranks of tensor parallelism. Call this only if tensor parallelism splits the segment.
  TensorGroup& tensor() const { return *tensor_; }
  int64_t num_tokens() const { return num_rows_; }
  // Sets the number of rows of `value` in this run. If the segment's rows are bounded, num_tokens() becomes
  // `rows`, which may be less than the table's number. In other segments `rows` must equal the table's
  // number.
  void SetRows(int value, int64_t rows) {
    const int64_t expected = segment_.values[static_cast<size_t>(value)].rows;
    TRAINCTL_CHECK_MSG(rows == expected || (segment_.rows_are_bounded && rows < expected), "a segment of ",
                       segment_.rows_are_bounded ? "at most " : "", expected, " rows was given ", rows);
    if (segment_.rows_are_bounded) num_rows_ = rows;
  }
  at::ScalarType dtype() const { return ToAten(segment_.dtype); }
  int64_t accumulator_bytes() const { return DTypeBytes(trainctl::AccumulatorOf(segment_.dtype)); }

  at::Tensor& Value(int value) { return values_[static_cast<size_t>(value)]; }
  at::Tensor& Gradient(int value) { return gradients_[static_cast<size_t>(value)]; }
  const BoundParameter& Bound(int parameter) const;

  at::Tensor Empty(at::IntArrayRef sizes) const { return at::empty(sizes, device_.Options(dtype())); }
  // AddBias computes y += bias. AddBiasGradient adds the sum of dy's rows to the gradient of the bias, or
  // replaces the gradient if `accumulate` is false.
  void AddBias(at::Tensor& y, int bias) const;
  void AddBiasGradient(int bias, const at::Tensor& dy, bool accumulate) const;
  // Returns adjacent weights of one product as one matrix [rows, cols].
  at::Tensor Matrix(const std::vector<int>& weights, int64_t rows, int64_t cols) const;
  static void* Row(const at::Tensor& tensor, int64_t row) {
    return static_cast<char*>(tensor.data_ptr()) +
           row * tensor.stride(0) * static_cast<int64_t>(tensor.itemsize());
  }

  // Adds a contribution to the gradient of `value`. The first contribution becomes the gradient without a
  // copy.
  void Receive(int value, at::Tensor gradient);
  // Call this before writing to a gradient. Replaces the gradient by a copy if anything else refers to it.
  static void MakeExclusive(at::Tensor& gradient) {
    if (gradient.use_count() > 1) gradient = gradient.clone();
  }

  // Computes out = a b, [m, k] x [k, n].
  static void Multiply(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
  // Adds dyᵀ x to the gradient of adjacent weights, as one matrix [out, in]. Replaces the gradient if
  // `accumulate` is false.
  void AddWeightGradient(const std::vector<int>& weights, const at::Tensor& dy, const at::Tensor& x,
                         bool accumulate) const;

  // The number of chunks into which rows are split; each chunk has its own sums. 1 on a device, which
  // distributes the work itself.
  int NumChunks() const {
    return device_.is_cpu() ? static_cast<int>(std::clamp<int64_t>(num_tokens(), 1, threads_)) : 1;
  }
  // Calls function(begin, end, chunk) for the tokens' rows in NumChunks() chunks, in parallel on the CPU. The
  // chunks are the same in every run, so sums are split in the same way.
  template <typename Function>
  void ForRows(const Function& function) const {
    ForChunks(num_tokens(), function);
  }
  // The same for any number of rows. A chunk may be empty.
  template <typename Function>
  void ForChunks(int64_t rows, const Function& function) const {
    const int chunks = NumChunks();
    if (chunks == 1) return function(0, rows, 0);
    const int64_t each = (rows + chunks - 1) / chunks;
    at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t first = std::min(rows, chunk * each);
        function(first, std::min(rows, first + each), static_cast<int>(chunk));
      }
    });
  }

 private:
  const device::Device& device_;
  const model::Segment& segment_;
  const RopeTables* const rope_;
  const int threads_;
  const BoundParameters& parameters_;
  const TokenView& view_;
  TensorGroup* const tensor_;
  int64_t num_rows_;
  LossRequest loss_;
  KeyValueCache* cache_ = nullptr;
  std::vector<at::Tensor> values_;
  std::vector<at::Tensor> gradients_;
};

}  // namespace trainctl::nn
