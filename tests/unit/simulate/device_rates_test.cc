#include "simulate/device_rates.h"

#include <gtest/gtest.h>

#include "model/operators.h"

namespace trainctl::simulate {
namespace {

std::shared_ptr<const cluster::Machine> H100() { return *cluster::MachineOf({.device = "h100-sxm-80gb"}); }

model::Product Square(double edge) { return {DType::kBF16, edge, edge, edge, 2}; }

model::AttentionKernel Kernel(double head_dim, bool backward) {
  return {.tokens = 8192, .seq_len = 8192, .heads = 32, .head_dim = head_dim, .backward = backward};
}

Work WorkOf(const model::Product& product) {
  Work work;
  work.products = {{product}};
  return work;
}

Work WorkOf(const model::AttentionKernel& kernel) {
  Work work;
  work.attention = {{kernel}};
  return work;
}

// A device whose products take `products` times what the catalogue gives for an H100's, and so on.
MeasuredDevice Slower(double products, double attention, double backward) {
  MeasuredDevice device{.name = "NVIDIA H100 80GB HBM3", .bytes_per_second = 2e12, .launch_seconds = 5e-6};
  const Rates flash = DeviceRates(H100(), DType::kBF16);
  const Rates vendor = DeviceRates(H100(), DType::kBF16, FusedAttention::kVendor);
  for (double edge : {2048.0, 8192.0})
    device.products.push_back({Square(edge), products * flash.Seconds(WorkOf(Square(edge)))});
  // Of another type: it says nothing of bf16.
  device.products.push_back({{DType::kF32, 512, 512, 512, 4}, 1});
  for (double head_dim : {64.0, 128.0}) {
    for (bool is_backward : {false, true}) {
      const model::AttentionKernel kernel = Kernel(head_dim, is_backward);
      const double scale = is_backward ? backward : attention;
      device.attention.push_back({FusedAttention::kFlash2, kernel, scale * flash.Seconds(WorkOf(kernel))});
      device.attention.push_back({FusedAttention::kVendor, kernel, 3 * vendor.Seconds(WorkOf(kernel))});
    }
  }
  return device;
}

TEST(DeviceRates, WhatWasMeasuredScalesWhatTheCatalogueGives) {
  const MeasuredDevice measured = Slower(1.25, 0.8, 1.5);
  const Rates usual = DeviceRates(H100(), DType::kBF16);
  const Rates rates = DeviceRates(H100(), DType::kBF16, FusedAttention::kFlash2, &measured);
  EXPECT_TRUE(rates.measured);
  EXPECT_FALSE(rates == usual);
  const auto ratio = [&](const Work& work) { return rates.Seconds(work) / usual.Seconds(work); };
  // Of shapes that were not timed too.
  EXPECT_NEAR(ratio(WorkOf(model::Product{DType::kBF16, 4096, 14336, 4096, 8})), 1.25, 1e-9);
  EXPECT_NEAR(ratio(WorkOf(Kernel(96, /*backward=*/false))), 0.8, 1e-9);
  EXPECT_NEAR(ratio(WorkOf(Kernel(96, /*backward=*/true))), 1.5, 1e-9);
  EXPECT_DOUBLE_EQ(rates[Resource::kMovedBytes], 1 / 2e12);
  EXPECT_DOUBLE_EQ(rates[Resource::kOperators], 5e-6);
  // Sums of squares and updates pass over memory; what is sent was not measured.
  Work sent;
  sent.exchanges = {{{.collective = Collective::kAllReduce, .bytes = 1e9, .ranks = 8}}};
  EXPECT_DOUBLE_EQ(ratio(sent), 1);
  EXPECT_EQ(FasterAttention(measured),
            FusedAttention::kFlash2);  // the vendor's is three times the catalogue's
  // Each kernel of its own.
  EXPECT_NEAR(DeviceRates(H100(), DType::kBF16, FusedAttention::kVendor, &measured).scales.attention, 3,
              1e-9);
}

// Its products do 80 TFLOP/s and read at 2 TB/s, attention 50 and 40 TFLOP/s.
TEST(DeviceRates, ADeviceThatNobodyKnowsHasTheRatesOfItsShapes) {
  constexpr double kFlops = 80e12, kBytesPerSecond = 2e12, kForward = 50e12, kBackward = 40e12;
  MeasuredDevice measured{.name = "Z9000", .bytes_per_second = kBytesPerSecond, .launch_seconds = 3e-6};
  for (const auto& [rows, inner, columns] :
       {std::tuple<double, double, double>{8192, 8192, 8192}, {8192, 128, 8192}, {256, 4096, 14336}}) {
    const double bytes = 2 * (rows * inner + inner * columns + rows * columns);
    measured.products.push_back({{DType::kBF16, rows, inner, columns, 2},
                                 2 * rows * inner * columns / kFlops + bytes / kBytesPerSecond});
  }
  for (bool backward : {false, true}) {
    const double scores = 32 * static_cast<double>(model::ScoresComputed(8192, 0));
    measured.attention.push_back({FusedAttention::kVendor, Kernel(128, backward),
                                  (backward ? 5 / kBackward : 2 / kForward) * 2 * scores * 128});
  }
  const Rates rates = UnknownDeviceRates(DType::kBF16, FusedAttention::kVendor, &measured);
  EXPECT_TRUE(rates.measured);
  EXPECT_EQ(rates.machine, nullptr);
  EXPECT_NEAR(rates[Resource::kMatmulFlops] * kFlops, 1, 1e-6);
  EXPECT_NEAR(rates[Resource::kOperandBytes] * kBytesPerSecond, 1, 1e-6);
  EXPECT_NEAR(rates[Resource::kAttentionFlops] * kForward, 1, 1e-6);
  EXPECT_NEAR(rates[Resource::kAttentionBackwardFlops] * kBackward, 1, 1e-6);
  EXPECT_DOUBLE_EQ(rates[Resource::kMovedBytes] * kBytesPerSecond, 1);
  EXPECT_EQ(rates[Resource::kOperators], 3e-6);
  EXPECT_FALSE(UnknownDeviceRates(DType::kBF16).measured);
}

}  // namespace
}  // namespace trainctl::simulate
