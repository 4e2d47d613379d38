#include "pricing/operator_time.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trainctl::pricing {
namespace {

// Shared by all devices and frameworks.
// No kernel is shorter on the device: an empty kernel takes this from launch to launch
// (NVIDIA developer blog "Employing CUDA Graphs in a Dynamic Environment": 2.2 us launch, 5 us eager).
constexpr double kKernelSeconds = 5e-6;
// Of the best rate that was ever measured, what products of training's shapes reach in whole tiles and waves:
// mean of 183 shapes measured on an A100 PCIe (MooreThreads/SimuMax configs/system/a100_pcie.json) against
// that device's best (stas00/ml-engineering), priced as below, 0.91. On H100 the same share of 794 TFLOP/s is
// the 720 that SemiAnalysis measured with cuBLAS ("MI300X vs H100 vs H200 Benchmark Part 1", December 2024).
constexpr double kTrainingShapeShare = 0.91;
// What of that low precision reaches: 1,280 of 1,979 against 720 of 989 TFLOP/s on H100 (the same article).
constexpr double kLowPrecisionShare = 0.89;
// Of the nominal rate, where nobody published a measured one: what A100, H100 and MI300X reach between them
// (stas00/ml-engineering, achievable matmul FLOPS: 87 %, 80 %, 58 %).
constexpr double kUnmeasuredMatmulShare = 0.75;
constexpr double kUnmeasuredBandwidthShare = 0.85;
// Of the dense half-precision peak, causal, forward and backward. A100: means of the tables of SimuMax
// (a100_pcie.json, sdp_fwd 0.963 and sdp_bwd 0.837 of the whole square, of which the mask leaves half). H100:
// arXiv 2407.08608 figures 5 and 6, FlashAttention-2 and -3. Blackwell: SimuMax (b200_bf16_ceperm.json, 0.706
// and 0.694 of the square).
constexpr double kFlash2Forward = 0.48, kFlash2Backward = 0.42;
constexpr double kFlash2OnHopper = 0.35, kFlash2BackwardOnHopper = 0.30;
// FlashAttention-2 is some two times faster than the first, and 1.3 to 1.5 times than its Triton version
// (arXiv 2307.08691, section 4.1; the Triton version is the one that was used for training).
constexpr double kFlash1OfFlash2 = 1 / 1.5;
constexpr double kVendorOnHopper = 0.62, kVendorBackwardOnHopper = 0.5;
constexpr double kVendorOnBlackwell = 0.35, kVendorBackwardOnBlackwell = 0.35;
constexpr double kAttentionBackwardWork = 2.5;  // five products against two

bool IsBeforeHopper(const cluster::Device& device) { return device.fp8_flops.value == 0; }
bool IsBlackwell(const cluster::Device& device) { return device.fp4_flops.value > 0; }

double PeakFlops(const cluster::Device& device, Precision precision) {
  double share = kTrainingShapeShare * (device.measured_half_flops.value > 0
                                            ? device.measured_half_flops.value / device.half_flops.value
                                            : kUnmeasuredMatmulShare);
  double nominal = device.half_flops.value;
  if (precision == Precision::kFp32) {
    nominal = device.tf32_flops.value > 0 ? device.tf32_flops.value : device.fp32_flops.value;
  } else if (precision == Precision::kNvfp4 && device.fp4_flops.value > 0) {
    nominal = device.fp4_flops.value;
    share *= kLowPrecisionShare;
  } else if (precision != Precision::kBf16 && precision != Precision::kFp16 && device.fp8_flops.value > 0) {
    nominal = device.fp8_flops.value;
    share *= kLowPrecisionShare;
  }
  return nominal * share;
}

double OperandBytes(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return 4;
    case Precision::kFp16:
    case Precision::kBf16:
      return 2;
    case Precision::kFp8:
    case Precision::kMxfp8:
      return 1;
    case Precision::kNvfp4:
      return 0.5;
  }
  return 2;
}

ForwardBackward AttentionSeconds(const WorkItem& item, const Workload& w) {
  const cluster::Device& device = *w.device;
  const double flops = 4 * item.rows * item.inner * item.columns * item.head_dim;
  const double peak = device.half_flops.value;
  switch (w.framework->attention) {
    case AttentionKernel::kScores: {
      // Batch products over the whole square, and a softmax that passes over the scores.
      const double context = 2 * item.inner;
      const double heads = item.columns * item.rows / static_cast<double>(w.seq_len);
      const double product =
          MatmulSeconds(device, w.precision, heads, static_cast<double>(w.seq_len), item.head_dim, context);
      const double softmax = ElementwiseSeconds(device, 2 * 2 * item.rows * context * item.columns);
      return {2 * product + softmax, 4 * product + 1.5 * softmax};
    }
    case AttentionKernel::kFlash1:
    case AttentionKernel::kFlash2: {
      const bool old = IsBeforeHopper(device);
      const double of_second = w.framework->attention == AttentionKernel::kFlash1 ? kFlash1OfFlash2 : 1;
      const double forward_share = of_second * (old ? kFlash2Forward : kFlash2OnHopper);
      const double backward_share = of_second * (old ? kFlash2Backward : kFlash2BackwardOnHopper);
      return {std::max(kKernelSeconds, flops / (peak * forward_share)),
              std::max(kKernelSeconds, kAttentionBackwardWork * flops / (peak * backward_share))};
    }
    case AttentionKernel::kVendor: {
      if (IsBeforeHopper(device)) {
        return {std::max(kKernelSeconds, flops / (peak * kFlash2Forward)),
                std::max(kKernelSeconds, kAttentionBackwardWork * flops / (peak * kFlash2Backward))};
      }
      const bool newest = IsBlackwell(device);
      const double forward_share = newest ? kVendorOnBlackwell : kVendorOnHopper;
      const double backward_share = newest ? kVendorBackwardOnBlackwell : kVendorBackwardOnHopper;
      return {std::max(kKernelSeconds, flops / (peak * forward_share)),
              std::max(kKernelSeconds, kAttentionBackwardWork * flops / (peak * backward_share))};
    }
  }
  return {};
}

}  // namespace

double BytesPerSecond(const cluster::Device& device) {
  return device.measured_memory_bandwidth.value > 0
             ? device.measured_memory_bandwidth.value
             : device.memory_bandwidth.value * kUnmeasuredBandwidthShare;
}

double ElementwiseSeconds(const cluster::Device& device, double bytes) {
  return std::max(kKernelSeconds, bytes / BytesPerSecond(device));
}

double MatmulSeconds(const cluster::Device& device, Precision precision, double batch, double rows,
                     double inner, double columns) {
  if (batch * rows * inner * columns <= 0) return 0;
  const double units = std::max(1.0, device.compute_units.value);
  const double flops = PeakFlops(device, precision);
  // Whole tiles, in waves over the compute units; the better orientation of the tile.
  double compute = 0;
  for (const auto& [tile_rows, tile_columns] :
       {std::pair<double, double>{cluster::kMatmulTileRows, cluster::kMatmulTileColumns},
        {cluster::kMatmulTileColumns, cluster::kMatmulTileRows},
        {cluster::kMatmulTileColumns, cluster::kMatmulTileColumns}}) {
    const double tiles = batch * std::ceil(rows / tile_rows) * std::ceil(columns / tile_columns);
    const double waves = std::ceil(tiles / units);
    const double seconds = waves * 2 * tile_rows * tile_columns * inner / (flops / units);
    compute = compute == 0 ? seconds : std::min(compute, seconds);
  }
  const double element = OperandBytes(precision);
  const double bytes = batch * ((rows * inner + inner * columns) * element + rows * columns * 2);
  return std::max({kKernelSeconds, compute, bytes / BytesPerSecond(device)});
}

ForwardBackward OperatorSeconds(const WorkItem& item, const Workload& w) {
  const cluster::Device& device = *w.device;
  switch (item.kind) {
    case WorkKind::kMatmul: {
      const Precision precision = item.fp8 || !w.IsFp8() ? w.precision : Precision::kBf16;
      const auto product = [&](double rows, double inner, double columns) {
        return MatmulSeconds(device, precision, item.batch, rows, inner, columns);
      };
      // To low precision and back: the operands pass through memory once more.
      double casts = 0;
      if (w.IsFp8() && item.fp8) {
        casts = 3 * item.batch * (item.rows * item.inner) / BytesPerSecond(device);
      }
      return {product(item.rows, item.inner, item.columns) + casts,
              product(item.rows, item.columns, item.inner) + product(item.inner, item.rows, item.columns) +
                  2 * casts};
    }
    case WorkKind::kAttention:
      return AttentionSeconds(item, w);
    case WorkKind::kElementwise: {
      const double passes = w.framework->fused_elementwise ? 1 : 2;
      return {ElementwiseSeconds(device, passes * item.moved_bytes),
              ElementwiseSeconds(device, 2 * passes * item.moved_bytes)};
    }
  }
  return {};
}

}  // namespace trainctl::pricing
