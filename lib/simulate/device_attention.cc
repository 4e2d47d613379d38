#include "simulate/device_attention.h"

#include <algorithm>

#include "simulate/device_matmul.h"

namespace trainctl::simulate {
namespace {

using cluster::Silicon;

constexpr double kBackwardWork = 2.5;  // five products against two
constexpr double kTileRows = 128;      // queries of a tile of the forward, keys of one of the backward

// Tiles on the mask's diagonal are done whole, and every tile fills and drains its loop: as many keys more
// for every query. arXiv 2407.08608, ibid.: FlashAttention-2 goes from 191 to 335 (forward) and 214 to 322
// TFLOP/s (backward) from 512 to 16,384 tokens, cuDNN alike.
constexpr double kDiagonalForward = 150, kDiagonalBackward = 110;

// Of the dense half-precision peak, heads of 128 under the causal mask, endless sequences and as many tiles
// as one likes; and what heads of 64 and of more than 128 reach of that, forward and backward.
struct KernelRates {
  double forward, backward;
  double small_head_forward, small_head_backward;
  double tile_rows;  // queries of a tile of the forward
  // Of the peak, what products sustain within the power limit of the device that was measured; 0: not
  // limited.
  double products = 0;
  // Keys more for every query that tiles' beginnings and ends cost (see above).
  double forward_keys = kDiagonalForward, backward_keys = kDiagonalBackward;
};
// A100, FlashAttention-2: SimuMax's table (configs/system/a100_pcie.json, sdp_fwd and sdp_bwd of 4 to 128
// heads of 4,096 tokens: 185 and 157 TFLOP/s at 64 heads; 158 and 122 for heads of 192 and 128); heads of 64:
// as H100.
constexpr KernelRates kFlash2OnAmpere = {0.67, 0.55, 0.89, 0.9, 128};
// H100: arXiv 2407.08608, figures 5 and 6, 16,384 tokens in one sequence: FlashAttention-2 335 and 322
// TFLOP/s (299 and 291 with heads of 64), cuDNN 539 and 516 (388 and 433).
constexpr double kProductsOnH100 = 0.763;  // SustainedFlops over half_flops, as those below
constexpr KernelRates kFlash2OnHopper = {0.38, 0.34, 0.89, 0.9, 128, kProductsOnH100};
constexpr KernelRates kVendorOnHopper = {0.61, 0.54, 0.72, 0.84, 128, kProductsOnH100};
// B200, cuDNN: SimuMax (configs/system/b200_bf16_ceperm.json, as above: 1,121 and 936 TFLOP/s at 128 heads;
// 934 and 723 for heads of 192 and 128); heads of 64: as GB200.
constexpr KernelRates kVendorOnB200 = {0.59, 0.45, 0.41, 0.54, 256, 0.527};
// GB200, GB300: NVIDIA/cudnn-frontend benchmark/sdpa_benchmark_training/results/gb200_919_only_cudnn and
// gb300_919_only_cudnn, llama3.1_20260226_*.csv: 64 heads of 4,096 and of 8,192 tokens under the causal mask,
// 0.206 and 0.688 ms forward, 0.607 and 2.097 ms backward; GB300, which does twice the exponentials, 0.164
// and 0.583, 0.575 and 1.985 ms. B300: as GB300.
// Heads of 64: ibid., gpt_oss_20260226_*.csv, two sequences of 4,096 tokens in a window of 1,024: 0.209 and
// 0.487 ms, 0.178 and 0.472 ms.
constexpr KernelRates kVendorOnGb200 = {0.72, 0.53, 0.41, 0.54, 256, 0.570};
constexpr KernelRates kVendorOnGb300 = {0.87, 0.56, 0.40, 0.52, 256, 0.665};
// MI355X, bf16, 16,384 tokens under the causal mask, and its shares for all of AMD's: HazyResearch/HipKittens
// @f09e9685 analysis/attn/{fwd,bkwd}/plot.py and {fwd,bkwd}/benchmark/mi355x_*_causal*.json. PyTorch's own
// kernel, 64 heads of queries and 8 of keys: 789 and 259 TFLOP/s, of 8,192 tokens 705 and 224 (heads of 64:
// 667; backward: as forward). AMD's library (AITER), 16 heads: 1,247 and 1,109, 1,173 and 1,034 (heads of 64:
// 633). Both lengths decide what tiles' beginnings and ends cost.
constexpr KernelRates kFlash2OnCdna = {0.356, 0.122, 0.84, 0.84, 128, 0, 1108, 1515};
constexpr KernelRates kVendorOnCdna = {0.529, 0.475, 0.51, 0.51, 128, 0, 551, 640};
// FlashAttention-2 is some two times faster than the first, and 1.3 to 2.5 times than its Triton version
// (arXiv 2307.08691, section 4.1; the Triton version is the one that was used for training).
constexpr double kFlash1OfFlash2 = 1 / 1.7;
// Heads of 192 and 128 (latent attention). A100 and B200 alike: SimuMax, ibid., 167 and 125, 996 and 685
// TFLOP/s. GB200, GB300: cudnn-frontend, ibid., dsv3_20260226_*.csv: 128 heads of 4,096 and of 8,192 tokens,
// 0.509 and 1.800, 1.613 and 5.728 ms; 0.454 and 1.548, 1.544 and 5.432 ms.
constexpr double kLargeHeadForward = 0.9, kLargeHeadBackward = 0.77;
constexpr double kLargeHeadBackwardGrace = 0.91;
// In FP8 so many times faster, ibid., 4,096 tokens: 0.161 and 0.559 ms, latent attention 0.359 and 1.310 ms,
// gpt-oss 0.203 and 0.862 ms on GB200; 0.118 and 0.525, 0.285 and 1.197, 0.148 and 0.792 ms on GB300. The
// backward in FP8 leaves out nothing of what a window does: gpt-oss's takes four times as long for twice the
// tokens.
struct Fp8Speeds {
  ForwardBackward small_heads, heads, large_heads;
};
constexpr Fp8Speeds kFp8OnGb200 = {{1.03, 1.20}, {1.28, 1.09}, {1.42, 1.23}};
constexpr Fp8Speeds kFp8OnGb300 = {{1.20, 1.29}, {1.39, 1.10}, {1.59, 1.29}};

bool IsGb300(const cluster::Device& device) { return device.silicon == Silicon::kBlackwellUltra; }
bool IsGb200(const cluster::Device& device) {
  return device.silicon == Silicon::kBlackwell && device.grace_host;
}

const KernelRates& RatesOf(FusedAttention kernel, const cluster::Device& device) {
  switch (GenerationOf(device)) {
    case Generation::kAmpere:
      return kFlash2OnAmpere;
    case Generation::kHopper:
      return kernel == FusedAttention::kVendor ? kVendorOnHopper : kFlash2OnHopper;
    case Generation::kBlackwell:
      // PyTorch and Transformer Engine both take cuDNN's kernel (torchtitan
      // torchtitan/models/common/attention.py lists it first).
      return IsGb300(device) ? kVendorOnGb300 : IsGb200(device) ? kVendorOnGb200 : kVendorOnB200;
    case Generation::kOther:
      return kernel == FusedAttention::kVendor ? kVendorOnCdna : kFlash2OnCdna;
  }
  return kFlash2OnAmpere;
}

// Within a step products keep the device at its power limit, and the clock that they leave is that of
// attention between them: with less power than the device had on which attention was measured alone, it is
// slower too.
double ClockShare(const KernelRates& rates, const cluster::Device& device) {
  if (rates.products == 0 || device.watts.value <= 0) return 1;
  return std::min(1.0, SustainedFlops(device, Precision::kBf16) / device.half_flops.value / rates.products);
}

// The kernels in waves: the units are busy with `tiles` of the mean length, and then some idle until the
// longest is done. Tails of SimuMax's tables: 1.5 mean tiles forward, 0.7 backward, on A100 and B200 alike.
double WithTail(double seconds, double tiles, double units, double tail) {
  return seconds * (1 + tail * units / std::max(1.0, tiles));
}

}  // namespace

ForwardBackward AttentionSeconds(const cluster::Device& device, FusedAttention kernel,
                                 const AttentionShape& s) {
  const KernelRates& rates = RatesOf(kernel, device);
  double forward = device.half_flops.value * rates.forward;
  double backward = device.half_flops.value * rates.backward;
  const double clock = ClockShare(rates, device);
  forward *= clock;
  backward *= clock;
  if (kernel == FusedAttention::kFlash1) {
    forward *= kFlash1OfFlash2;
    backward *= kFlash1OfFlash2;
  }
  if (s.head_dim <= 64) {
    forward *= rates.small_head_forward;
    backward *= rates.small_head_backward;
  } else if (s.head_dim > 128) {
    forward *= kLargeHeadForward;
    backward *= IsGb200(device) || IsGb300(device) ? kLargeHeadBackwardGrace : kLargeHeadBackward;
  }
  double backward_keys = s.keys;
  if (s.fp8 && (IsGb200(device) || IsGb300(device))) {
    const Fp8Speeds& speeds = IsGb300(device) ? kFp8OnGb300 : kFp8OnGb200;
    const ForwardBackward& speed = s.head_dim <= 64    ? speeds.small_heads
                                   : s.head_dim <= 128 ? speeds.heads
                                                       : speeds.large_heads;
    forward *= speed.forward;
    backward *= speed.backward;
    backward_keys = s.seq_len / 2;
  }
  const double flops_per_key = 4 * s.queries * s.heads * s.head_dim;
  const double units = device.compute_units.value;
  const double head_rows = s.heads * s.queries;
  return {std::max(kKernelSeconds, WithTail(flops_per_key * (s.keys + rates.forward_keys) / forward,
                                            head_rows / rates.tile_rows, units, 1.5)),
          std::max(kKernelSeconds,
                   WithTail(kBackwardWork * flops_per_key * (backward_keys + rates.backward_keys) / backward,
                            head_rows / kTileRows, units, 0.7))};
}

}  // namespace trainctl::simulate
