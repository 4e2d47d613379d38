#include "nn/segment_run.h"

#include <utility>

#include "base/status.h"
#include "nn/bf16_product.h"

namespace trainctl::nn {

const BoundParameter& SegmentRun::Bound(int parameter) const {
  const auto index = static_cast<size_t>(parameter);
  TRAINCTL_CHECK_MSG(index < parameters_.size(), "parameter ", parameter, " of the block is not bound");
  return parameters_[index];
}

at::Tensor SegmentRun::Matrix(const std::vector<int>& weights, int64_t rows, int64_t cols) const {
  return device_.View(Bound(weights[0]).data, {rows, cols}, dtype());
}

void SegmentRun::AddBias(at::Tensor& y, int bias) const {
  ForChunks(y.size(0), [&](int64_t begin, int64_t end, int) {
    typed().add_bias(Row(y, begin), Bound(bias).data, end - begin, y.size(1));
  });
}

void SegmentRun::AddBiasGradient(int bias, const at::Tensor& dy, bool accumulate) const {
  const BoundParameter& bound = Bound(bias);
  if (!accumulate) device_.Zero(bound.gradient, dy.size(1) * accumulator_bytes());
  typed().bias_gradient(bound.gradient, dy.data_ptr(), dy.size(0), dy.size(1));
}

void SegmentRun::Receive(int value, at::Tensor gradient) {
  at::Tensor& sum = Gradient(value);
  if (!sum.defined()) {
    sum = std::move(gradient);
    return;
  }
  MakeExclusive(sum);
  ForChunks(sum.size(0), [&](int64_t begin, int64_t end, int) {
    typed().add(Row(sum, begin), Row(gradient, begin), (end - begin) * sum.size(1));
  });
}

void SegmentRun::Multiply(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (out.is_cpu() && out.scalar_type() == at::kBFloat16 && LacksFastBf16Products())
    return MultiplyInTiles(out, a, b);
  const device::ScopedCpuMemoryTag tag(device::kScratchTag);
  at::mm_out(out, a, b);
}

void SegmentRun::AddWeightGradient(const std::vector<int>& weights, const at::Tensor& dy, const at::Tensor& x,
                                   bool accumulate) const {
  const int64_t out = dy.size(1);
  const int64_t in = x.size(1);
  at::Tensor gradient = device_.View(Bound(weights[0]).gradient, {out, in}, AccumulatorOf(dtype()));
  if (dtype() == gradient.scalar_type()) {
    if (accumulate) {
      const device::ScopedCpuMemoryTag tag(device::kScratchTag);
      gradient.addmm_(dy.t(), x);
    } else {
      Multiply(gradient, dy.t(), x);
    }
    return;
  }
  if (!device_.is_cpu()) {
    // A device's products have fp32 results of bf16 factors.
    if (accumulate) {
      at::addmm_out(gradient, gradient, dy.t(), x, at::kFloat);
    } else {
      at::mm_out(gradient, dy.t(), x, at::kFloat);
    }
    return;
  }
  at::Tensor product = Empty({out, in});
  Multiply(product, dy.t(), x);
  const auto add_part = [&](int64_t begin, int64_t end) {
    const void* source = static_cast<const char*>(product.data_ptr()) + begin * product.itemsize();
    (accumulate ? typed().accumulate : typed().assign)(gradient.data_ptr<float>() + begin, source,
                                                       end - begin);
  };
  const int64_t numel = out * in;
  at::parallel_for(0, numel, (numel + threads_ - 1) / threads_, add_part);
}

}  // namespace trainctl::nn
