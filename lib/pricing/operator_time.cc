#include "pricing/operator_time.h"

#include <algorithm>

namespace trainctl::pricing {
namespace {

// From the end of one kernel to the first byte of the next: a kernel of one element takes this
// (pytorch/ao torchao/testing/training/roofline_utils.py, KERNEL_LAUNCH_OVERHEAD_SEC, H100).
constexpr double kKernelGapSeconds = 2e-6;
// Of the bandwidth of other passes, what gathers by index reach: 0.50 against 0.67 of nominal on B200
// (MooreThreads/SimuMax configs/system/b200_bf16_ceperm.json, permute_fwd and default).
constexpr double kPermuteShare = 0.75;

double PassSeconds(const cluster::Device& device, double bytes, double kernels) {
  return bytes > 0 ? kernels * kKernelGapSeconds + bytes / BytesPerSecond(device) : 0;
}

// Passes that a fused kernel of the forward stands for, and those of the backward, in units of its bytes.
ForwardBackward PassesOf(const WorkItem& item, const Workload& w) {
  const FrameworkProfile& f = *w.framework;
  switch (item.pass) {
    case PassKind::kNorm:
      // Forward r w. Backward: dy, x, dx, and dy and x again for the weights where that is another kernel.
      // Without fusion: to fp32, square and mean, scale, back, times the weights.
      return f.fused_elementwise ? ForwardBackward{1, f.norm_is_two_passes ? 2.5 : 1.5}
                                 : ForwardBackward{7, 12};
    case PassKind::kResidual:
      // Forward r r w; the backward adds the gradients of both branches. Dropout reads or writes its
      // mask, and its backward is a pass of its own.
      return w.model.dropout ? ForwardBackward{7.0 / 6, 11.0 / 6} : ForwardBackward{1, 1};
    case PassKind::kRotary:
      if (f.rotary == RotaryKernel::kNone) return {0, 0};
      if (f.rotary == RotaryKernel::kComplex) return {5, 5};  // 2 + 4, 4 + 4, 4 + 2 bytes against 2 + 2
      return {1, 1};
    case PassKind::kActivation:
      return {1, 1.5};  // r w; dy, x, dx
    case PassKind::kGatedActivation:
      // r r w; dy, gate, up, two gradients. Without fusion the activation's result is written and read.
      return f.fused_elementwise ? ForwardBackward{1, 10.0 / 6} : ForwardBackward{10.0 / 6, 3};
    case PassKind::kPermute:
      return {1 / kPermuteShare, 1 / kPermuteShare};
  }
  return {1, 1};
}

}  // namespace

double ElementwiseSeconds(const cluster::Device& device, double bytes) {
  return PassSeconds(device, bytes, 1);
}

double MatmulSeconds(const cluster::Device& device, Precision precision, double batch, double rows,
                     double inner, double columns) {
  return MatmulSeconds(device, precision,
                       MatmulShape{.batch = batch, .rows = rows, .inner = inner, .columns = columns});
}

ForwardBackward OperatorSeconds(const WorkItem& item, const Workload& w) {
  const cluster::Device& device = *w.device;
  switch (item.kind) {
    case WorkKind::kMatmul: {
      const bool low = w.IsFp8() && item.fp8;
      const Precision precision = low || !w.IsFp8() ? w.precision : Precision::kBf16;
      const auto product = [&](double rows, double inner, double columns, double result_bytes) {
        return MatmulSeconds(device, precision, {item.batch, rows, inner, columns, result_bytes}) +
               kKernelGapSeconds;
      };
      const bool adds = w.framework->accumulates_in_product;
      ForwardBackward seconds = {product(item.rows, item.inner, item.columns, 2),
                                 product(item.rows, item.columns, item.inner, 2) +
                                     product(item.inner, item.rows, item.columns, adds ? 8 : 2)};
      if (low) {
        // The input is brought to low precision before the forward, the output's gradient before the
        // backward.
        const double bytes = w.framework->quantize_bytes * item.batch * item.rows;
        seconds.forward += PassSeconds(device, bytes * item.inner, 1);
        seconds.backward += PassSeconds(device, bytes * item.columns, 1);
      }
      return seconds;
    }
    case WorkKind::kAttention:
      return AttentionSeconds(item, w);
    case WorkKind::kElementwise: {
      const ForwardBackward passes = PassesOf(item, w);
      return {PassSeconds(device, passes.forward * item.moved_bytes, 1),
              PassSeconds(device, passes.backward * item.moved_bytes, 1)};
    }
  }
  return {};
}

ForwardBackward HeadSeconds(const Workload& w) {
  const cluster::Device& device = *w.device;
  const double tokens = w.TokensPerRank();
  const double hidden = static_cast<double>(w.model.hidden);
  const double columns = static_cast<double>(w.model.vocab) / static_cast<double>(w.degrees.tp);
  const Precision precision = w.IsFp8() ? Precision::kBf16 : w.precision;
  const double loss = ElementwiseSeconds(device, tokens * columns * w.framework->logit_moved_bytes / 2);
  const bool adds = w.framework->accumulates_in_product;
  return {MatmulSeconds(device, precision, {1, tokens, hidden, columns, 2}) + loss,
          MatmulSeconds(device, precision, {1, tokens, columns, hidden, 2}) +
              MatmulSeconds(device, precision, {1, hidden, tokens, columns, adds ? 8.0 : 2.0}) + loss};
}

double OptimizerSeconds(const Workload& w, double elements) {
  // Norm: read. Clip: read and written. Update: master copy, moments and gradient read, all but the gradient
  // written, and the copy for the products. Clear: written.
  const double gradient = w.framework->gradient_bytes;
  const double bytes = 4 * gradient + 2 * w.OptimizerBytes() + gradient + w.framework->weight_bytes;
  return elements * bytes / BytesPerSecond(*w.device);
}

}  // namespace trainctl::pricing
