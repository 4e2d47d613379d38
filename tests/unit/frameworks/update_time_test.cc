#include "frameworks/update_time.h"

#include <gtest/gtest.h>

#include "frameworks/operator_time.h"
#include "frameworks/pipeline_rank.h"
#include "tests/unit/frameworks/time_job.h"

namespace trainctl::frameworks {
namespace {

TEST(UpdateTime, AHostUpdatesAsFastAsZeroOffloadDid) {
  // 10 billion parameters took 2.57 s; those of all ranks of a node share its host, each has a link of its
  // own.
  Workload w = SmallJob("megatron-core");
  w.mesh.dp_shard = 8;
  w.zero_stage = 1;
  const double device = UpdateSeconds(w);
  w.optimizer_on_host = true;
  const double all = ParametersOfRank(w, 0).all();
  const double adam = all * 2.57 / 10e9;
  const double copies = all / 8 * (4 + 2) / HostLinkBytesPerSecond(*w.device);
  EXPECT_NEAR(UpdateSeconds(w), adam + copies, 1e-3);
  EXPECT_GT(UpdateSeconds(w), 20 * device);
  w.optimizer_bytes = 2;  // moments of a byte each, paged
  EXPECT_LT(UpdateSeconds(w), device);
}

TEST(UpdateTime, ShardsAreUpdatedOnceAndFrozenWeightsNever) {
  Workload w = SmallJob("megatron-core");
  w.mesh.dp_shard = 8;
  w.zero_stage = 0;
  const double whole = UpdateSeconds(w);
  w.zero_stage = 1;
  EXPECT_NEAR(UpdateSeconds(w), whole / 8, 1e-4);
  w.frozen = true;
  EXPECT_EQ(UpdateSeconds(w), 0);
}

TEST(UpdateTime, AnOptimizerInPythonMovesMoreAndIsLaunchedTensorByTensor) {
  Workload w = SmallJob("fsdp1");
  w.mesh.dp_shard = 8;
  w.zero_stage = 3;
  // Norm and clipping 4 + 8 bytes, cleared 4, and 8 + 12 + 8 + 12 + 8 + 8 + 8 + 16 of the eight kernels; 3.35
  // TB/s nominal, of which 0.85.
  EXPECT_NEAR(UpdateSeconds(w), ParametersOfRank(w, 0).all() / 8 * 96 / (0.85 * 3.35e12), 1e-3);
  // Of 32 blocks and the rest, a rank of many has hardly more than a part of one tensor each: ten launches.
  w.mesh.dp_shard = 8192;
  EXPECT_NEAR(UpdateSeconds(w), 33 * 10 * 13.48e-6, 0.5e-3);
  // InternEvo's: 10 for the norm, 10 for the flat fp32 copy, 8 unscaled, 88 of AdamW, 6 back.
  w.framework = FindFramework("internevo");
  w.mesh.dp_shard = 8;
  w.zero_stage = 1;
  EXPECT_NEAR(UpdateSeconds(w), ParametersOfRank(w, 0).all() / 8 * 122 / (0.85 * 3.35e12), 1e-3);
  w.mesh.dp_shard = 8192;
  w.framework = FindFramework("torchtitan");  // one fused kernel
  EXPECT_LT(UpdateSeconds(w), 1e-3);
}

TEST(UpdateTime, HostLinksFollowTheGeneration) {
  const auto rate = [](const char* device) {
    return HostLinkBytesPerSecond(*SmallJob("fsdp1", device).device);
  };
  EXPECT_GT(rate("gb200-186gb"), rate("h100-sxm-80gb"));
  EXPECT_GT(rate("h100-sxm-80gb"), rate("a100-sxm-80gb"));
  EXPECT_LT(rate("a100-sxm-80gb"), 31.5e9);  // PCIe 4 at most
}

}  // namespace
}  // namespace trainctl::frameworks
