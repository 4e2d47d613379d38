// Products against what others measured of single kernels and published: none of these runs is among those
// that whole steps are scored on.
#include "simulate/device_matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cluster/catalogue.h"

namespace trainctl::simulate {
namespace {

const cluster::Device& Device(const char* name) {
  const auto match = cluster::FindDevice(name);
  EXPECT_TRUE(match.ok()) << match.status();
  return *match->device;
}

struct MatmulFact {
  const char* device;
  Precision precision;
  MatmulShape shape;
  double tera_flops;  // published
  double tolerance;   // of the time
  const char* source;
};

constexpr char kSimuMaxA100[] = "MooreThreads/SimuMax configs/system/a100_pcie.json";
constexpr char kSimuMaxB200[] = "MooreThreads/SimuMax configs/system/b200_bf16_ceperm.json";
constexpr char kSizing[] = "EleutherAI/cookbook@27dff48d sizing/results (A100)";
constexpr char kSemiAnalysis[] = "SemiAnalysis, MI300X vs H100 vs H200 Benchmark Part 1, 8192 cubed";

// {batch, rows, inner, columns, bytes moved per element of the result}
const MatmulFact kMatmuls[] = {
    {"a100-pcie-80gb", Precision::kBf16, {1, 4096, 8192, 8192, 2}, 229, 0.08, kSimuMaxA100},
    {"a100-pcie-80gb", Precision::kBf16, {1, 4096, 1536, 24576, 2}, 217.5, 0.1, kSimuMaxA100},
    {"a100-pcie-80gb", Precision::kBf16, {1, 1536, 4096, 5120, 8}, 194.8, 0.12, kSimuMaxA100},
    {"a100-pcie-80gb", Precision::kBf16, {1, 4096, 512, 4096, 2}, 190, 0.12, kSimuMaxA100},
    // Experts' products: few rows each.
    {"a100-pcie-80gb", Precision::kBf16, {40, 616, 5120, 3072, 2}, 197, 0.15, kSimuMaxA100},
    {"a100-pcie-80gb", Precision::kBf16, {20, 1232, 5120, 3072, 2}, 221, 0.15, kSimuMaxA100},
    {"a100-sxm-80gb", Precision::kBf16, {1, 8192, 4096, 12288, 2}, 241.6, 0.05, kSizing},
    {"a100-sxm-80gb", Precision::kBf16, {1, 8192, 16384, 4096, 2}, 252.8, 0.05, kSizing},
    {"a100-sxm-80gb", Precision::kBf16, {1, 8192, 14336, 51136, 2}, 255.4, 0.05, kSizing},
    // Two columns more, and one: their rows start off 16 and off 4 bytes.
    {"a100-sxm-80gb", Precision::kBf16, {1, 8192, 14336, 51138, 2}, 136.9, 0.15, kSizing},
    {"a100-sxm-80gb", Precision::kBf16, {1, 8192, 14336, 51137, 2}, 76.1, 0.1, kSizing},
    // The scores of one layer's attention, written to memory.
    {"a100-sxm-80gb", Precision::kBf16, {64, 2048, 128, 2048, 2}, 91.6, 0.15, kSizing},
    {"h100-sxm-80gb", Precision::kBf16, {1, 8192, 8192, 8192, 2}, 720, 0.05, kSemiAnalysis},
    {"h100-sxm-80gb", Precision::kFp8, {1, 8192, 8192, 8192, 2}, 1280, 0.08, kSemiAnalysis},
    {"b200-sxm-180gb", Precision::kBf16, {1, 4096, 8192, 8192, 2}, 1040, 0.15, kSimuMaxB200},
    {"b200-sxm-180gb", Precision::kBf16, {1, 16384, 16384, 8192, 2}, 1104, 0.1, kSimuMaxB200},
    {"b200-sxm-180gb", Precision::kBf16, {40, 616, 5120, 3072, 2}, 1039, 0.3, kSimuMaxB200},
    // Gradients of experts' weights are bound by the fp32 results that they are added to.
    {"b200-sxm-180gb", Precision::kBf16, {160, 3072, 154, 5120, 8}, 211, 0.25, kSimuMaxB200},
    {"b200-sxm-180gb", Precision::kBf16, {64, 4096, 512, 7168, 8}, 493, 0.3, kSimuMaxB200},
};

TEST(DeviceMatmul, ProductsTakeWhatWasMeasured) {
  for (const MatmulFact& fact : kMatmuls) {
    const MatmulShape& s = fact.shape;
    const double seconds = MatmulSeconds(Device(fact.device), fact.precision, s);
    const double measured = 2 * s.batch * s.rows * s.inner * s.columns / (fact.tera_flops * 1e12);
    EXPECT_LT(std::abs(seconds / measured - 1), fact.tolerance)
        << fact.device << " " << s.batch << " x [" << s.rows << ", " << s.inner << ", " << s.columns
        << "]: " << seconds * 1e6 << " us against " << measured * 1e6 << " (" << fact.source << ")";
  }
}

// The same silicon with 1200, 1400 and 1100 W against 1000: at the power limit the rate goes with the power,
// and what GB300's and B300's FP4 can do at best over B200's does not help.
TEST(DeviceMatmul, BlackwellAtItsLimitIsAsFastAsItsPower) {
  const auto over_b200 = [](const char* device, Precision precision) {
    return SustainedFlops(Device(device), precision) / SustainedFlops(Device("b200-sxm-180gb"), precision);
  };
  for (const Precision precision : {Precision::kBf16, Precision::kFp8, Precision::kNvfp4}) {
    EXPECT_NEAR(over_b200("gb300-288gb", precision), 1.4, 0.03);
    EXPECT_NEAR(over_b200("b300-sxm-288gb", precision), 1.1, 0.03);
  }
  EXPECT_NEAR(over_b200("gb200-186gb", Precision::kBf16), 1.2, 0.03);
}

// Where the power limit is far off, what is left is 0.95 of the best product, of FP4 as of the others; and at
// the limit FP4 does four times what bf16 does.
TEST(DeviceMatmul, ALimitThatIsFarOffTakesNothingFromFp4) {
  cluster::Device device = Device("gb300-288gb");
  const double bf16 = SustainedFlops(device, Precision::kBf16);
  EXPECT_NEAR(SustainedFlops(device, Precision::kNvfp4) / 0.97, 4 * bf16, 1e-3 * bf16);
  device.watts.value = 1e6;
  const double best = device.measured_half_flops.value / device.half_flops.value * device.fp4_flops.value;
  EXPECT_NEAR(SustainedFlops(device, Precision::kNvfp4), 0.95 * 0.97 * best, 1e-6 * best);
}

// 0.95 of 794.5 TFLOP/s at 700 W are 1.078 TFLOP for a joule: 539 TFLOP/s at 500 W and 431 at 400 (H100 NVL,
// whose units could do more). A100 is not at its limit: PCIe cards of 300 W reach 252.9 of SXM's 271.2.
TEST(DeviceMatmul, HopperWithLessPowerIsAsMuchSlower) {
  EXPECT_NEAR(SustainedFlops(Device("h100-sxm-80gb"), Precision::kBf16) / 1e12, 754.8, 0.5);
  EXPECT_NEAR(SustainedFlops(Device("h100-sxm-96gb-hbm2e"), Precision::kBf16) / 1e12, 539.1, 0.5);
  EXPECT_NEAR(SustainedFlops(Device("h100-nvl-94gb"), Precision::kBf16) / 1e12, 431.3, 0.5);
  EXPECT_NEAR(SustainedFlops(Device("b100-sxm-192gb"), Precision::kBf16) / 1e12, 0.68 * 1745 * 0.7, 0.5);
  EXPECT_NEAR(SustainedFlops(Device("a100-pcie-80gb"), Precision::kBf16) / 1e12, 0.95 * 252.9, 0.5);
}

// Among shapes of one device, what is slower there is slower here: the order is what a search lives on.
TEST(DeviceMatmul, WastedTilesCost) {
  const cluster::Device& a100 = Device("a100-sxm-80gb");
  const auto per_flop = [&](double rows, double columns) {
    return MatmulSeconds(a100, Precision::kBf16, {1, rows, 4096, columns, 2}) / (rows * columns);
  };
  EXPECT_GT(per_flop(130, 4096), 1.3 * per_flop(8192, 4096));
  EXPECT_GT(per_flop(8192, 4100), per_flop(8192, 4096));
  // Two rows more than what one wave takes.
  EXPECT_GT(per_flop(256 * 27 + 2, 128 * 4), 1.1 * per_flop(256 * 27, 128 * 4));
}

TEST(DeviceMatmul, ProductsPayForWholeTiles) {
  const cluster::Device& h100 = Device("h100-sxm-80gb");
  const double even = MatmulSeconds(h100, Precision::kBf16, {1, 8192, 8192, 8192, 2});
  // Nothing is faster than the device's best published rate.
  EXPECT_GE(even, 2 * std::pow(8192.0, 3) / h100.measured_half_flops.value);
  EXPECT_LE(even, 1.25 * 2 * std::pow(8192.0, 3) / h100.measured_half_flops.value);
  EXPECT_GE(MatmulSeconds(h100, Precision::kBf16, {1, 8192, 8192, 8193, 2}), even);
}

}  // namespace
}  // namespace trainctl::simulate
