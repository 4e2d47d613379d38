#include "frameworks/data_parallel_time.h"

#include <gtest/gtest.h>

#include "cluster/collectives.h"
#include "frameworks/operator_time.h"
#include "frameworks/overlap.h"
#include "frameworks/pipeline_rank.h"
#include "frameworks/price_memory.h"
#include "simulate/device_kernels.h"
#include "tests/unit/frameworks/time_job.h"

namespace trainctl::frameworks {
namespace {

using cluster::Collective;

Workload Replicated(const char* framework, int64_t dp, int zero) {
  Workload w = SmallJob(framework);
  w.mesh.dp_shard = dp;
  w.zero_stage = zero;
  w.global_batch = dp;
  return w;
}

double Collect(const Workload& w, Collective collective, double bytes, cluster::GroupPlacement group) {
  return cluster::CollectiveSeconds(collective, bytes, group, *w.node);
}

// Compute that covers everything, and none.
PassTimes Endless() {
  PassTimes times;
  times.forward = times.input_backward = 1e6;
  return times;
}

TEST(DataParallelTime, WithoutOverlapAllOfItIsExposed) {
  const Workload w = Replicated("megatron-deepspeed", 16, 1);
  const double elements = ParametersOfRank(w, 0).all();
  const double expected =
      Collect(w, Collective::kReduceScatter, elements * w.framework->gradient_bytes, {16, 8}) +
      Collect(w, Collective::kAllGather, elements * 2, {16, 8});
  EXPECT_NEAR(TimeDataParallel(w, Endless(), true).total(), expected, 1e-9);
  EXPECT_NEAR(TimeDataParallel(w, PassTimes{}, true).total(), expected, 1e-9);
}

TEST(DataParallelTime, BesideThePassesTheLastBucketIsExposed) {
  const Workload w = Replicated("megatron-core", 16, 1);
  const double elements = ParametersOfRank(w, 0).all();
  // Buckets of 40 million elements: one of 201.
  const DataParallelTimes hidden = TimeDataParallel(w, Endless(), false);
  EXPECT_NEAR(hidden.exposed_reduce_seconds / hidden.reduce_seconds, 40e6 / elements, 1e-9);
  EXPECT_NEAR(hidden.exposed_gather_seconds / hidden.gather_seconds, 40e6 / elements, 1e-9);
  EXPECT_NEAR(hidden.spread_seconds, 0, 1e-9);
  // Compute is slower beside it: 16 of 132 units are taken, and two and a half times the 361.4 GB/s that a
  // ring reaches within a node, which is less than its adapters', of 3.35 TB/s.
  const DataParallelTimes slowed = TimeDataParallel(w, Endless(), true);
  EXPECT_NEAR(slowed.spread_seconds,
              (1 - (1 - 16.0 / 132) * (1 - 2.5 * 361.4e9 / 3350e9)) * (1 - 40e6 / elements) *
                  (slowed.reduce_seconds + slowed.gather_seconds),
              2e-3 * slowed.spread_seconds);
  const DataParallelTimes exposed = TimeDataParallel(w, PassTimes{}, true);
  EXPECT_NEAR(exposed.total(), exposed.reduce_seconds + exposed.gather_seconds, 1e-9);
}

// What was measured beside an all-gather within a node.
TEST(DataParallelTime, ComputeBesideAGatherIsAsSlowAsMeasured) {
  const auto left = [](const char* device) {
    const Workload w = SmallJob("torchtitan", device);
    return SpeedLeftByRing({8, 8}, w, true);
  };
  EXPECT_NEAR(left("a100-sxm-80gb"), 1.18 / 2.08, 0.03);  // NVIDIA/nccl#1428
  EXPECT_NEAR(left("a100-sxm-80gb"), 0.18 / 0.33, 0.03);
  EXPECT_NEAR(left("h100-sxm-80gb"), 47.0 / 80, 0.03);  // NVIDIA developer forum topic 337991
  EXPECT_EQ(SpeedLeftByRing({8, 8}, SmallJob("torchtitan"), false), 1);
  EXPECT_EQ(SpeedLeftByRing({1, 1}, SmallJob("torchtitan"), true), 1);
}

TEST(DataParallelTime, WeightsInFp8AreGatheredSo) {
  Workload w = Replicated("megatron-core", 16, 1);
  const double elements = ParametersOfRank(w, 0).all();
  w.weights_in_fp8 = true;
  EXPECT_NEAR(TimeDataParallel(w, Endless(), true).gather_seconds,
              Collect(w, Collective::kAllGather, elements, {16, 8}), 1e-9);
}

TEST(DataParallelTime, WhatIsCastBeforeItIsGatheredTakesHalfTheWay) {
  Workload w = Replicated("torchtitan", 8, 3);
  const double own = ParametersOfRank(w, 0).all(), layers = ParametersOfRank(w, 0).layers;
  const double whole = TimeDataParallel(w, Endless(), false).total();
  w.gathers_fp8 = true;
  // The first block's gather of half the bytes, and what is copied out of gathered blocks: 4 bytes, not 8; of
  // a rank's eighth, cast and copied twice, 7 bytes and not 10.
  const double gather = Collect(w, Collective::kAllGather, layers / 32 * 2, {8, 8}) -
                        Collect(w, Collective::kAllGather, layers / 32, {8, 8});
  EXPECT_NEAR(whole - TimeDataParallel(w, Endless(), false).total(),
              gather + own * (4 + 2 * 3.0 / 8) / simulate::BytesPerSecond(*w.device), 1e-9);
}

TEST(DataParallelTime, OwnersBroadcastWhatOthersGather) {
  // 16 ranks own a sixteenth each; all gradients are all-reduced.
  const Workload w = Replicated("internevo", 16, 1);
  const double elements = ParametersOfRank(w, 0).all();
  const DataParallelTimes times = TimeDataParallel(w, Endless(), true);
  EXPECT_NEAR(times.reduce_seconds, Collect(w, Collective::kAllReduce, elements * 2, {16, 8}), 1e-9);
  EXPECT_NEAR(times.exposed_gather_seconds,
              16 * Collect(w, Collective::kBroadcast, elements * 2 / 16, {16, 8}), 1e-9);
  // Flattened, divided and copied back, 4 bytes each; nothing else where there is nothing to run beside.
  EXPECT_NEAR(TimeDataParallel(w, PassTimes{}, true).spread_seconds, elements * 12 / (0.85 * 3.35e12), 1e-9);
}

TEST(DataParallelTime, FullyShardedBlocksAreGatheredTwiceAndCopied) {
  const Workload w = Replicated("torchtitan", 8, 3);
  const RankParameters own = ParametersOfRank(w, 0);
  const DataParallelTimes hidden = TimeDataParallel(w, Endless(), false);
  const double layer = own.layers / 32;
  const double gather = Collect(w, Collective::kAllGather, layer * 2, {8, 8});
  const double scatter = Collect(w, Collective::kReduceScatter, layer * 4, {8, 8});
  // First gather, last scatter, the embedding's; 2 x (2 + 2) bytes copied out, 2 + 4 copied in; of a rank's
  // eighth twice 4 + 2 to cast it and 2 + 2 to bring it where it is gathered.
  const double tables = Collect(w, Collective::kAllGather, own.tables / 2 * 2, {8, 8}) +
                        Collect(w, Collective::kReduceScatter, own.tables / 2 * 4, {8, 8});
  const double copies = own.all() * (14 + 2 * 10.0 / 8) / simulate::BytesPerSecond(*w.device);
  EXPECT_NEAR(hidden.total(), gather + scatter + tables + copies, 1e-9);
  // With nothing to hide behind, every layer pays two gathers and a scatter.
  EXPECT_NEAR(TimeDataParallel(w, PassTimes{}, false).total() - hidden.total(), 32 * (2 * gather + scatter),
              1e-9);
  // Each micro-batch again.
  Workload twice = w;
  twice.global_batch *= 2;
  EXPECT_NEAR(TimeDataParallel(twice, Endless(), false).total(), 2 * hidden.total(), 1e-9);
}

TEST(DataParallelTime, FlatGradientsAreJoinedCastAndDivided) {
  Workload w = Replicated("fsdp1", 8, 3);
  const RankParameters own = ParametersOfRank(w, 0);
  const auto expected = [&](double wire, double copied) {
    const double gather = Collect(w, Collective::kAllGather, own.layers / 32 * 2, {8, 8}) +
                          Collect(w, Collective::kAllGather, own.tables / 2 * 2, {8, 8});
    const double scatter = Collect(w, Collective::kReduceScatter, own.layers / 32 * wire, {8, 8}) +
                           Collect(w, Collective::kReduceScatter, own.tables / 2 * wire, {8, 8});
    return gather + scatter + own.all() * copied / simulate::BytesPerSecond(*w.device);
  };
  // Joined 2 + 2, cast 2 + 4, divided in place 4 + 4.
  EXPECT_NEAR(TimeDataParallel(w, Endless(), false).total(), expected(4, 18), 1e-9);
  // In bf16 there is nothing to cast: joined 2 + 2, divided 2 + 2.
  w.exchanged_gradient_bytes = 2;
  EXPECT_NEAR(TimeDataParallel(w, Endless(), false).total(), expected(2, 8), 1e-9);
}

TEST(DataParallelTime, ReplicasOfShardsReduceWhatWasScattered) {
  Workload w = Replicated("megatron-deepspeed", 16, 1);
  w.mesh.dp_replicate = 2;
  w.mesh.dp_shard = 8;
  const double bytes = ParametersOfRank(w, 0).all() * w.framework->gradient_bytes;
  EXPECT_NEAR(TimeDataParallel(w, Endless(), true).reduce_seconds,
              Collect(w, Collective::kReduceScatter, bytes, {8, 8}) +
                  Collect(w, Collective::kAllReduce, bytes / 8, {2, 1}),
              1e-9);
}

// DeepSpeed's runtime/zero/stage_1_and_2.py reduces partitioned gradients in every micro-batch, and without
// overlap nothing of that hides; parameters are gathered once.
TEST(DataParallelTime, ShardedGradientsAreScatteredInEveryMicroBatch) {
  const FrameworkProfile plain = {};
  for (const FrameworkProfile* framework : {FindFramework("megatron-deepspeed"), &plain}) {
    Workload w = Replicated("megatron-deepspeed", 16, 2);
    w.framework = framework;
    const DataParallelTimes one = TimeDataParallel(w, PassTimes{}, true);
    w.global_batch = 64;
    EXPECT_NEAR(TimeDataParallel(w, PassTimes{}, true).total(), one.total() + 3 * one.reduce_seconds, 1e-9);
    w.zero_stage = 1;
    EXPECT_NEAR(TimeDataParallel(w, PassTimes{}, true).total(), one.total(), 1e-9);
  }
  // Beside the backwards the last bucket of each is exposed, of four micro-batches that of four.
  Workload w = Replicated("megatron-deepspeed", 16, 2);
  w.framework = &plain;
  w.global_batch = 64;
  const DataParallelTimes hidden = TimeDataParallel(w, Endless(), false);
  EXPECT_NEAR(hidden.spread_seconds, 3 * hidden.exposed_reduce_seconds, 1e-9);
  EXPECT_NEAR(hidden.exposed_reduce_seconds / hidden.reduce_seconds, 40e6 / ParametersOfRank(w, 0).all(),
              1e-9);
}

// torch.distributed.pipelining adds gradients up whole and scatters them when all passes are over.
TEST(DataParallelTime, APipelineOfPyTorchScattersOnce) {
  Workload w = Replicated("torchtitan", 8, 2);
  w.mesh.pp = 4;
  w.global_batch = 8 * 16;
  const RankParameters own = ParametersOfRank(w, 0);
  const double scatter = 8 * Collect(w, Collective::kReduceScatter, own.layers / 8 * 4, {8, 8}) +
                         Collect(w, Collective::kReduceScatter, own.tables / 2 * 4, {8, 8});
  // Copied in as fp32: 2 + 4 bytes.
  const DataParallelTimes times = TimeDataParallel(w, Endless(), false);
  EXPECT_NEAR(times.exposed_reduce_seconds, scatter + own.all() * 6 / simulate::BytesPerSecond(*w.device),
              1e-9);
  Workload longer = w;
  longer.global_batch *= 4;
  EXPECT_NEAR(TimeDataParallel(longer, Endless(), false).total(), times.total(), 1e-9);
  // And so they are kept.
  EXPECT_NEAR(PriceMemoryOfRank(w, 0).At(MemoryMoment::kEnd).gradients, own.all() * 4, 1);
  w.mesh.pp = 1;
  EXPECT_NEAR(PriceMemoryOfRank(w, 0).At(MemoryMoment::kEnd).gradients, ParametersOfRank(w, 0).all() / 8 * 4,
              1);
}

// What a rank casts and copies to be gathered is its part: of dense weights a sixteenth here, of the experts,
// of which 8 ranks have different ones, a half.
TEST(DataParallelTime, APartOfTheExpertsIsSharedByFewerRanks) {
  Workload w = Replicated("torchtitan", 16, 3);
  SetExperts(w.model, model::Experts{.num_experts = 64, .top_k = 4, .ffn = 1024});
  w.mesh.ep = 8;
  const RankParameters own = ParametersOfRank(w, 0);
  FrameworkProfile no_copies = *w.framework;
  no_copies.copies_gathered_blocks = false;
  Workload without = w;
  without.framework = &no_copies;
  const double copies = own.all() * (2 + 2) + (own.dense() / 16 + own.experts / 2) * (4 + 2 + 2 + 2);
  EXPECT_NEAR(
      TimeDataParallel(w, Endless(), false).total() - TimeDataParallel(without, Endless(), false).total(),
      2 * copies / simulate::BytesPerSecond(*w.device), 1e-9);
}

TEST(DataParallelTime, TiedTablesAreSummedAcrossThePipeline) {
  Workload w = Replicated("megatron-core", 1, 0);
  w.mesh.pp = 4;
  w.global_batch = 8;
  EXPECT_EQ(TimeDataParallel(w, Endless(), true).total(), 0);
  w.model.tie_embeddings = true;
  EXPECT_NEAR(TimeDataParallel(w, Endless(), true).total(),
              Collect(w, Collective::kAllReduce, 128256.0 * 4096 * 4, {2, 2}), 1e-9);
  w.frozen = true;
  EXPECT_EQ(TimeDataParallel(w, Endless(), true).total(), 0);
}

}  // namespace
}  // namespace trainctl::frameworks
