// What an operator works with while its segment runs: activations and gradients by value id, bound
// parameters, tokens, and the device with its kernels. One run over one micro-batch; not shared by threads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "device/device.h"
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
// In which sums over elements of a type are formed.
inline at::ScalarType AccumulatorOf(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// What a loss is asked for. Pointers are memory of the device.
struct LossRequest {
  double* sum = nullptr;  // is added to
  float z_loss = 0;
  const float* scale = nullptr;  // of gradients; null: none are wanted
};

class SegmentRun {
 public:
  // `rope` are the tables that RopeAttributes::angle_table counts. `tensor`: null where the segment is whole.
  // Borrows everything.
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

  // What attention has to continue; null: the tokens are all that there is.
  void ContinueFrom(KeyValueCache* cache) { cache_ = cache; }
  KeyValueCache* cache() const { return cache_; }

  const device::Device& device() const { return device_; }
  const kernels::TypedKernels& typed() const { return device_.kernels().For(segment_.dtype); }
  // For accumulators.
  const kernels::TypedKernels& sums() const {
    return device_.kernels().For(trainctl::AccumulatorOf(segment_.dtype));
  }
  const model::Segment& segment() const { return segment_; }
  const TokenView& view() const { return view_; }
  const RopeTables& rope(size_t table) const { return rope_[table]; }
  // Of a segment that tensor parallelism cuts.
  TensorGroup& tensor() const { return *tensor_; }
  int64_t num_tokens() const { return num_rows_; }
  // Of a segment whose rows are bounded: how many there are this time. Of another one `value` has as many as
  // the table says.
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
  // y += bias; gradient of the bias (+)= the sum of dy's rows.
  void AddBias(at::Tensor& y, int bias) const;
  void AddBiasGradient(int bias, const at::Tensor& dy) const;
  // Adjacent weights of one product seen as one matrix [rows, cols].
  at::Tensor Matrix(const std::vector<int>& weights, int64_t rows, int64_t cols) const;
  static void* Row(const at::Tensor& tensor, int64_t row) {
    return static_cast<char*>(tensor.data_ptr()) +
           row * tensor.stride(0) * static_cast<int64_t>(tensor.itemsize());
  }

  // A contribution to the gradient of `value`: becomes it, or is added to it.
  void Receive(int value, at::Tensor gradient);
  // Of a gradient that is about to be written to: a copy where something else refers to it.
  static void MakeExclusive(at::Tensor& gradient) {
    if (gradient.use_count() > 1) gradient = gradient.clone();
  }

  // out = a b.
  static void Multiply(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
  // gradient (+)= dyᵀ x, over adjacent weights as one matrix [out, in].
  void AddWeightGradient(const std::vector<int>& weights, const at::Tensor& dy, const at::Tensor& x,
                         bool accumulate) const;

  // Parts that rows are cut into, each with a sum of its own; a device shares its work out itself.
  int NumChunks() const {
    return device_.is_cpu() ? static_cast<int>(std::clamp<int64_t>(num_tokens(), 1, threads_)) : 1;
  }
  // Calls function(begin, end, chunk) for the tokens' rows, in a fixed number of chunks, so that sums are cut
  // the same way on every run.
  template <typename Function>
  void ForRows(const Function& function) const {
    ForChunks(num_tokens(), function);
  }
  // The same for any number of rows; a chunk may be empty.
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
