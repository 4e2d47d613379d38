#include "plan/utilization.h"

#include <gmock/gmock.h>

#include <string>

namespace trainctl::plan {
namespace {

using testing::HasSubstr;

TEST(Utilization, TheCatalogueSaysWhatAGpuCanDo) {
  // NVIDIA's data sheet of the H100 SXM: 989.4 TFLOP/s bf16 dense (1,979 with sparsity), 494.7 TF32 dense.
  const Peak half = PeakOfWorker("h100-sxm-80gb", DType::kBF16, simulate::Rates());
  EXPECT_NEAR(half.flops, 989e12, 1e12);
  EXPECT_THAT(half.source, HasSubstr("h100-sxm-80gb, dense bf16"));
  EXPECT_NEAR(PeakOfWorker("h100-sxm-80gb", DType::kF32, simulate::Rates()).flops, 494.5e12, 1e12);
  EXPECT_EQ(PeakOfWorker("v100-sxm2-32gb", DType::kBF16, simulate::Rates()).flops, 0) << "it has no bf16";
  EXPECT_EQ(PeakOfWorker("some-other-gpu", DType::kBF16, simulate::Rates()).flops, 0);
}

TEST(Utilization, ACpusPeakIsKnownWhereItWasMeasured) {
  simulate::Rates rates;
  rates[simulate::Resource::kMatmulFlops] = 1e-11;
  EXPECT_EQ(PeakOfWorker("cpu", DType::kF32, rates).flops, 0) << "an order of magnitude is no peak";
  rates.measured = true;
  EXPECT_DOUBLE_EQ(PeakOfWorker("cpu", DType::kF32, rates).flops, 1e11);
  EXPECT_THAT(PeakOfWorker("cpu", DType::kF32, rates).source, HasSubstr("trainctl calibrate measured"));
}

TEST(Utilization, AllWorkersCountAndAnUnknownPeakGivesNothing) {
  Plan plan;
  plan.layout.mesh.dp_shard = 4;
  plan.layout.mesh.dp_replicate = 2;
  plan.flops_per_token = 50e9;
  EXPECT_EQ(PeakTokensPerSecond(plan), 0);
  plan.peak_flops = 1e15;
  EXPECT_DOUBLE_EQ(PeakTokensPerSecond(plan), 160000);  // 8 x 1e15 / 50e9
}

}  // namespace
}  // namespace trainctl::plan
