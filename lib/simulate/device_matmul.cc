#include "simulate/device_matmul.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "simulate/device_kernels.h"

namespace trainctl::simulate {
namespace {

// Of the best product that somebody published for a device, what the inner loop sustains over the shapes of
// training. A100: least squares over 183 shapes (MooreThreads/SimuMax configs/system/a100_pcie.json) of the
// form below. H100: 720 TFLOP/s of cuBLAS at 8192 cubed (SemiAnalysis, "MI300X vs H100 vs H200 Benchmark Part
// 1", December 2024) is 0.95 of 794.5 once the tail of the last wave and the loop's fill are taken out.
constexpr double kSustainedShare = 0.95;
// Blackwell holds its best rate for a tenth of a millisecond, and less at its power limit: least squares over
// 514 shapes on B200 (SimuMax configs/system/b200_bf16_ceperm.json) against 1,745 TFLOP/s.
constexpr double kSustainedShareBlackwell = 0.68;
// Other versions are the same silicon with more or less power, and at the limit an operation takes the same
// energy, of FP8 half of bf16's, of FP4 a quarter. So 0.68 of 1,745 TFLOP/s are of 1000 W. Published for one
// device under two limits: GB300 617 TFLOP/s at 500 W, 1,600 to 2,174 at 1400 (facebookexperimental/
// triton#2023). On Hopper the best one is at the limit: 0.95 of 794.5 TFLOP/s at 700 W.
constexpr double kFlopsPerJouleBlackwell = kSustainedShareBlackwell * 1745e12 / 1000;
constexpr double kFlopsPerJouleHopper = kSustainedShare * 794.5e12 / 700;
// Of twice the half-precision rate, what fp8 reaches. Hopper: 1,280 against 720 TFLOP/s (SemiAnalysis,
// ibid.). Blackwell: best products published of fp8 and bf16 on B200, B300 and GB200 (stas00/ml-engineering,
// compute/accelerator/README.md, MAMF): 0.98, 0.95, 0.99.
constexpr double kFp8ShareHopper = 0.89;
constexpr double kFp8ShareBlackwell = 0.97;
// CDNA 3: 990 against 620 TFLOP/s (SemiAnalysis, ibid.).
constexpr double kFp8ShareCdna = 0.8;
// Of the nominal rate, where nobody published a measured one: what A100, H100 and MI300X reach between them
// (stas00/ml-engineering, ibid.: 87 %, 80 %, 51 %).
constexpr double kUnmeasuredMatmulShare = 0.75;
// Steps of the inner loop that a tile's fill and drain cost, at half precision; and what smaller tiles reach.
// Least squares as above: mean error 3.7 % over those 183 shapes.
constexpr double kFillSteps = 128;
constexpr double kSmallTileShare = 0.85;

constexpr std::array<double, 3> kEdges = {64, 128, 256};
struct Tile {
  size_t rows;     // position in kEdges
  size_t columns;  // likewise
  double share;
};
// The last ones serve narrow results alone.
constexpr std::array<Tile, 7> kTiles = {{
    {2, 1, 1},
    {1, 2, 1},
    {1, 1, kSmallTileShare},
    {2, 0, kSmallTileShare},
    {0, 2, kSmallTileShare},
    {1, 0, kSmallTileShare* kSmallTileShare},
    {0, 1, kSmallTileShare* kSmallTileShare},
}};
static_assert(kEdges[kTiles[0].rows] == cluster::kMatmulTileRows &&
              kEdges[kTiles[0].columns] == cluster::kMatmulTileColumns);
// Into how many parts the inner dimension may be cut.
constexpr std::array<double, 3> kParts = {2, 4, 8};

double LowPrecisionShare(Generation generation) {
  switch (generation) {
    case Generation::kBlackwell:
      return kFp8ShareBlackwell;
    case Generation::kOther:
      return kFp8ShareCdna;
    case Generation::kAmpere:
    case Generation::kHopper:
      break;
  }
  return kFp8ShareHopper;
}

bool IsLow(Precision precision) {
  return precision == Precision::kFp8 || precision == Precision::kMxfp8 || precision == Precision::kNvfp4;
}

double ElementBytes(Precision precision) {
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

// Rows of an operand start every `elements`. Those that do not start at 16 bytes are loaded in pieces. A100,
// 8,192 rows, 51,136 to 51,264 columns and 14,336 to 14,464 inner steps (EleutherAI/cookbook@27dff48d
// sizing/results/transformer_data/vocab_{v,h}_sweep.out, the data of arXiv 2401.14489): 255 TFLOP/s at
// multiples of 8 elements, 138 (columns) and 173 (inner) at multiples of 2, 73 at odd ones.
double LoadShare(double elements, double element_bytes) {
  const double bytes = elements * element_bytes;
  if (std::fmod(bytes, 16) == 0) return 1;
  return std::fmod(bytes, 4) == 0 ? 0.6 : 0.29;
}

// The best product at half precision, measured or not.
double BestHalfFlops(const cluster::Device& device) {
  return device.measured_half_flops.value > 0 ? device.measured_half_flops.value
                                              : device.half_flops.value * kUnmeasuredMatmulShare;
}

// Of the best product.
double SustainedShare(const cluster::Device& device, Precision precision) {
  const bool blackwell = GenerationOf(device) == Generation::kBlackwell;
  if (!blackwell && device.silicon != cluster::Silicon::kHopper) return kSustainedShare;
  if (device.watts.value <= 0) return blackwell ? kSustainedShareBlackwell : kSustainedShare;
  const double limit = device.watts.value * (blackwell ? kFlopsPerJouleBlackwell : kFlopsPerJouleHopper);
  // At the limit FP4 does four times what bf16 does, whatever its nominal rate has beyond that.
  const bool fp4 = precision == Precision::kNvfp4 && device.fp4_flops.value > 0;
  const double rate = fp4 ? device.fp4_flops.value / (4 * device.half_flops.value) : 1;
  return std::min(kSustainedShare, limit / (rate * BestHalfFlops(device)));
}

}  // namespace

double SustainedFlops(const cluster::Device& device, Precision precision) {
  double share = SustainedShare(device, precision) * BestHalfFlops(device) / device.half_flops.value;
  double nominal = device.half_flops.value;
  if (precision == Precision::kFp32) {
    nominal = device.single_flops.value;
  } else if (IsLow(precision) && device.fp8_flops.value > 0) {
    share *= LowPrecisionShare(GenerationOf(device));
    nominal = precision == Precision::kNvfp4 && device.fp4_flops.value > 0 ? device.fp4_flops.value
                                                                           : device.fp8_flops.value;
  }
  return nominal * share;
}

double MatmulSeconds(const cluster::Device& device, Precision precision, const MatmulShape& s) {
  if (s.batch * s.rows * s.inner * s.columns <= 0) return 0;
  const double units = std::max(1.0, device.compute_units.value);
  const double element = ElementBytes(precision);
  const double flops = SustainedFlops(device, precision) *
                       std::min(LoadShare(s.inner, element), LoadShare(s.columns, element));
  const double bandwidth = BytesPerSecond(device);
  // The fill takes its time, however fast the loop: as many more steps of a narrower type.
  const double fill = kFillSteps * std::max(1.0, 2 / element);
  // The search asks for many millions of products: nothing is computed for each tile that several share.
  std::array<double, kEdges.size()> tiles_of_rows, tiles_of_columns;
  for (size_t e = 0; e < kEdges.size(); ++e) {
    tiles_of_rows[e] = s.batch * std::ceil(s.rows / kEdges[e]);
    tiles_of_columns[e] = std::ceil(s.columns / kEdges[e]);
  }
  size_t num_cuts = 0;
  std::array<double, kParts.size()> addition_s;
  for (; num_cuts < kParts.size() && s.inner >= kParts[num_cuts] * 2 * kFillSteps; ++num_cuts)
    addition_s[num_cuts] = kParts[num_cuts] * s.batch * s.rows * s.columns * 4 / bandwidth;
  double compute = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double tiles = tiles_of_rows[tile.rows] * tiles_of_columns[tile.columns];
    const double step = 2 * kEdges[tile.rows] * kEdges[tile.columns] / (flops / units * tile.share);
    compute = std::min(compute, std::ceil(tiles / units) * step * (s.inner + fill));
    if (tiles >= 2 * units) continue;
    // Too few tiles: their inner dimension is cut too, and the parts are added up.
    for (size_t k = 0; k < num_cuts; ++k) {
      compute = std::min(compute, std::ceil(tiles * kParts[k] / units) * step * (s.inner / kParts[k] + fill) +
                                      addition_s[k]);
    }
  }
  // Short loops do not hide the writing of the tile before (EleutherAI/cookbook, ibid., h_sweep.out: scores
  // of heads of 128 reach 92 TFLOP/s), nor longer ones that it is read and added to first (SimuMax, ibid.,
  // group_matmul: gradients of experts' weights from 512 rows each, 493 TFLOP/s on B200).
  const bool adds = s.result_bytes > 4;
  if (s.inner <= (adds ? 8 : 2) * kFillSteps) {
    const double exposed = s.inner <= 2 * kFillSteps && adds ? s.result_bytes / 2 : s.result_bytes;
    compute += s.batch * s.rows * s.columns * exposed / bandwidth;
  }
  const double bytes =
      s.batch * ((s.rows * s.inner + s.inner * s.columns) * element + s.rows * s.columns * s.result_bytes);
  return std::max({kKernelSeconds, compute, bytes / bandwidth});
}

}  // namespace trainctl::simulate
