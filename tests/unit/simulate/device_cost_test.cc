#include "simulate/device_cost.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/presets.h"
#include "simulate/cost.h"
#include "simulate/device_attention.h"
#include "simulate/device_matmul.h"
#include "simulate/device_rates.h"

namespace trainctl::simulate {
namespace {

std::shared_ptr<const cluster::Machine> MachineOf(int64_t nodes) {
  return *cluster::MachineOf({.device = "h100-sxm-80gb", .nodes = nodes, .devices_per_node = 8});
}

// A step of `nodes` x 8 devices, its prices and its work by name.
struct PricedStep {
  model::Architecture spec = *model::Preset("llama3.2-1b");
  layout::Ledger ledger;
  schedule::BuildOptions options;
  Rates rates;
  schedule::Step step;

  PricedStep(int64_t nodes, layout::Mesh mesh, int zero_stage, DType compute = DType::kBF16)
      : ledger(model::Inventory(spec), mesh, zero_stage),
        options{.micro_batch = 2,
                .setting = {.seq_len = 4096, .types = {.compute = compute}, .on_device = true}},
        rates(DeviceRates(MachineOf(nodes), DType::kBF16)),
        step(schedule::BuildStep(schedule::GraphOf(spec, ledger, options), ledger, options)) {}

  std::map<std::string, Work> Works() const { return WorkOfStep(step, ledger, options); }
  double CommunicationSeconds() const { return rates.Seconds(Works().at(kCommunication)); }
};

TEST(DeviceCost, RanksFillANodeBeforeTheNext) {
  const cluster::Node& node = *MachineOf(4)->node;
  const auto per_node = [&](int ranks, int stride) {
    return PlacementOf(ranks, stride, node).ranks_per_node;
  };
  EXPECT_EQ(per_node(32, 1), 8);
  EXPECT_EQ(per_node(4, 1), 4);
  EXPECT_EQ(per_node(4, 2), 4);  // 0 2 4 6
  EXPECT_EQ(per_node(8, 2), 4);  // 0 2 4 6 | 8 10 12 14
  EXPECT_EQ(per_node(4, 8), 1);  // one of each node
  EXPECT_EQ(per_node(2, 16), 1);
  EXPECT_EQ(per_node(2, 4), 2);
}

// A window takes the time of flash attention, for as many keys as its queries see.
TEST(DeviceCost, AWindowIsPricedByTheKeysInIt) {
  const auto machine = MachineOf(1);
  for (const bool backward : {false, true}) {
    Work work;
    work.attention = {{{.tokens = 16384,
                        .seq_len = 8192,
                        .heads = 32,
                        .head_dim = 128,
                        .window = 1024,
                        .backward = backward}}};
    double keys = 0;
    for (int query = 0; query < 8192; ++query) keys += std::min(query + 1, 1024);
    const ForwardBackward expected = AttentionSeconds(
        *machine->device, FusedAttention::kFlash2,
        {.queries = 16384, .keys = keys / 8192, .heads = 32, .head_dim = 128, .seq_len = 8192});
    for (const FusedAttention usual : {FusedAttention::kFlash2, FusedAttention::kVendor}) {
      EXPECT_DOUBLE_EQ(DeviceSeconds(*machine, usual, ShapeScales(), work),
                       backward ? expected.backward : expected.forward);
    }
  }
}

// By hand, from the sizes of the model: each layer's four products and their gradients, the head's in pieces,
// and attention, which counts no FLOPs as a product.
TEST(DeviceCost, ProductsAndAttentionArePricedByTheirShapes) {
  const PricedStep priced(1, {.dp_replicate = 8}, 0);
  const cluster::Device& device = *priced.rates.machine->device;
  const model::Architecture& spec = priced.spec;
  const double n = 2 * 4096, hidden = 2048, ffn = 8192, q = 2048, kv = 512;
  ASSERT_EQ(spec.hidden, hidden);
  ASSERT_EQ(MlpOf(spec).ffn, ffn);
  ASSERT_EQ(AttentionOf(spec).heads * AttentionOf(spec).head_dim, q);
  ASSERT_EQ(AttentionOf(spec).kv_heads * AttentionOf(spec).head_dim, kv);
  const auto product = [&](double rows, double inner, double columns, double result_bytes) {
    return MatmulSeconds(device, Precision::kBf16,
                         {.rows = rows, .inner = inner, .columns = columns, .result_bytes = result_bytes});
  };
  double forward = 0, backward = 0;
  for (const auto& [in, out] :
       {std::pair(hidden, q + 2 * kv), {q, hidden}, {hidden, 2 * ffn}, {ffn, hidden}}) {
    forward += product(n, in, out, 2);
    // Rounded to bf16, read again and written in fp32: the first of one micro-batch.
    backward += product(n, out, in, 2) + product(out, n, in, 8);
  }
  const double layers = static_cast<double>(NumLayers(spec));
  const auto works = priced.Works();
  const double gap = priced.rates[Resource::kOperators];
  const auto seconds = [&](const char* name) {
    const Work& work = works.at(name);
    return priced.rates.Seconds(work) - work[Resource::kOperators] * gap;
  };
  EXPECT_NEAR(seconds("linear"), layers * forward, 1e-9);
  EXPECT_NEAR(seconds("linear backward"), layers * backward, 1e-9);
  const ForwardBackward attention =
      AttentionSeconds(device, FusedAttention::kFlash2,
                       {.queries = n, .keys = 4097.0 / 2, .heads = 32, .head_dim = 64, .seq_len = 4096});
  EXPECT_NEAR(seconds("attention"), layers * attention.forward, 1e-9);
  // And a pass over the gradients, which puts them side by side and turns them back.
  const double joined = 2 * n * (q + 2 * kv) * 2 * priced.rates[Resource::kMovedBytes];
  EXPECT_NEAR(seconds("attention backward"), layers * (attention.backward + joined), 1e-9);
}

// The FLOPs of the lists are those of the units: nothing is left out of either.
TEST(DeviceCost, ListedProductsAreTheMatmulsOfTheUnits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    PricedStep priced(1, {.dp_replicate = 8}, 0);
    priced.options.setting.types.compute = dtype;
    for (const auto& [name, work] : priced.Works()) {
      if (work[Resource::kMatmulFlops] == 0) continue;
      double flops = 0;
      for (const auto& [what, count] : work.products)
        flops += count * 2 * what.batch * what.rows * what.inner * what.columns;
      // The last piece of the logits may be shorter than the others.
      EXPECT_NEAR(flops, work[Resource::kMatmulFlops], 0.15 * flops) << name;
      if (name == "linear cross entropy") continue;
      EXPECT_DOUBLE_EQ(flops, work[Resource::kMatmulFlops]) << name;
    }
  }
}

TEST(DeviceCost, ScoresInFp32AreDearerThanAFusedKernel) {
  const PricedStep fused(1, {.dp_replicate = 8}, 0), tiles(1, {.dp_replicate = 8}, 0, DType::kF32);
  for (const char* name : {"attention", "attention backward"}) {
    EXPECT_TRUE(tiles.Works().at(name).attention.empty());
    EXPECT_GT(tiles.rates.Seconds(tiles.Works().at(name)), 2 * fused.rates.Seconds(fused.Works().at(name)));
  }
}

// A ring over 512 ranks takes 511 steps for each gather; within a node seven, and the sum over the nodes is
// once a step. This is what hybrid sharding exists for (arXiv 2304.11277, section 3.2.2).
TEST(DeviceCost, ShardingWithinANodeIsCheaperThanOverManyNodes) {
  const PricedStep hybrid(64, {.dp_replicate = 64, .dp_shard = 8}, 3), full(64, {.dp_shard = 512}, 3);
  EXPECT_LT(hybrid.CommunicationSeconds(), 0.6 * full.CommunicationSeconds());
}

TEST(DeviceCost, ExchangesArePricedAsTheClusterPricesThem) {
  const PricedStep priced(4, {.dp_replicate = 4, .dp_shard = 8}, 2);
  const cluster::Node& node = *priced.rates.machine->node;
  const auto over = [&](Collective collective, double bytes, int ranks, int per_node) {
    return cluster::CollectiveSeconds(collective, bytes, {ranks, per_node}, node);
  };
  double expected = 0;
  for (const layout::Bucket& bucket : priced.ledger.buckets()) {
    const double elements = static_cast<double>(bucket.padded_numel);
    expected += over(Collective::kReduceScatter, 4 * elements, 8, 8) +  // within each node
                over(Collective::kAllReduce, 4 * elements / 8, 4, 1) +  // of each shard, over the nodes
                over(Collective::kAllGather, 2 * elements, 8, 8);       // updated, in bf16
  }
  const double shard = over(Collective::kAllReduce, 8, 8, 8),
               replicas = over(Collective::kAllReduce, 8, 4, 1);
  expected += 2 * (shard + replicas) + shard;  // tokens that count, loss, norm
  EXPECT_NEAR(priced.CommunicationSeconds(), expected, 1e-9);
}

TEST(DeviceCost, OneWorkerExchangesNothing) {
  const PricedStep priced(1, {}, 0);
  EXPECT_EQ(priced.CommunicationSeconds(), 0);
}

TEST(DeviceCost, StatedNumbersArePartOfThePrice) {
  cluster::StatedMachine stated{.device = "h100-sxm-80gb", .nodes = 4, .devices_per_node = 8};
  const Rates usual = DeviceRates(*cluster::MachineOf(stated), DType::kBF16);
  stated.scale_out_bandwidth = 1'000'000'000;
  const Rates slow = DeviceRates(*cluster::MachineOf(stated), DType::kBF16);
  EXPECT_FALSE(usual == slow);
  Work work;
  work.exchanges = {{{.collective = Collective::kAllReduce, .bytes = 1e9, .ranks = 32}}};
  EXPECT_GT(slow.Seconds(work), 10 * usual.Seconds(work));
}

}  // namespace
}  // namespace trainctl::simulate
