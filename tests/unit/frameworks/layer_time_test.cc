#include "frameworks/layer_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cluster/collectives.h"
#include "frameworks/operator_time.h"
#include "frameworks/overlap.h"
#include "frameworks/price_time.h"
#include "frameworks/update_time.h"
#include "simulate/device_kernels.h"
#include "tests/unit/frameworks/time_job.h"

namespace trainctl::frameworks {
namespace {

using cluster::Collective;

double Collect(const Workload& w, Collective collective, double bytes, cluster::GroupPlacement group) {
  return cluster::CollectiveSeconds(collective, bytes, group, *w.node);
}

TEST(Overlap, HiddenCommunicationCostsTheUnitsThatItTakes) {
  // 10 s of compute beside 4 s of communication that leave it 80 %: 0.8 s of work remain undone meanwhile.
  EXPECT_DOUBLE_EQ(SecondsBeyondCompute(10, 4, 0.8), 0.2 * 4);
  EXPECT_DOUBLE_EQ(SecondsBeyondCompute(10, 4, 1), 0);
  // Compute ends within 20 s of communication: 10 s are exposed whether it is slowed or not.
  EXPECT_DOUBLE_EQ(SecondsBeyondCompute(10, 20, 0.8), 10);
  // The two meet where compute just fills the communication.
  EXPECT_NEAR(SecondsBeyondCompute(8, 10, 0.8), 2, 1e-12);
  const Workload w = SmallJob();
  // 24 of 132 SMs on one node, 16 between nodes (two for each of eight adapters).
  EXPECT_DOUBLE_EQ(SpeedLeft({8, 8}, w, true), 1 - 24.0 / 132);
  EXPECT_DOUBLE_EQ(SpeedLeft({64, 8}, w, true), 1 - 16.0 / 132);
  EXPECT_DOUBLE_EQ(SpeedLeft({8, 8}, w, false), 1);
}

TEST(LayerWork, SaysWhatItLeavesOut) {
  model::Architecture model;
  EXPECT_THAT(LeftOut(model), testing::IsEmpty());
  SetEach(model, &model::Layer::norms, model::NormPlaces::kBeforeAndAfter);
  EXPECT_THAT(LeftOut(model), testing::ElementsAre(testing::HasSubstr("norms after attention")));
  model.mtp_layers = 1;
  EXPECT_THAT(LeftOut(model), testing::Contains(testing::HasSubstr("num_nextn_predict_layers")));
}

TEST(LayerTime, TensorParallelismWithoutOverlapIsFourAllReducesAndSixWithRecompute) {
  Workload w = SmallJob("megatron-deepspeed");
  w.mesh.tp = 4;
  const double one = Collect(w, Collective::kAllReduce, 4096.0 * 4096 * 2, {4, 4}) + LaunchSeconds(w, 1);
  EXPECT_NEAR(LayerPassTimes(w, 0, {}, true).tensor(), 4 * one, 1e-9);
  w.recompute = RecomputeKind::kFull;
  EXPECT_NEAR(LayerPassTimes(w, 0, {}, true).tensor(), 6 * one, 1e-9);
  // A layer that is not among those recomputed.
  const PassTimes kept = LayerPassTimes(w, 0, {.recomputed = false}, true);
  EXPECT_NEAR(kept.tensor(), 4 * one, 1e-9);
  EXPECT_EQ(kept.recompute, 0);
}

TEST(LayerTime, OverlappedExchangesCostTheProductsTheirSize) {
  // Eight pieces of 512 rows are two tiles high each; of few columns they leave much of the device idle.
  Workload w = SmallJob();
  w.mesh.tp = 8;
  const PassTimes cut = LayerPassTimes(w, 0, {}, true);
  const double all = 2 * (Collect(w, Collective::kAllGather, 4096.0 * 4096 * 2, {8, 8}) +
                          Collect(w, Collective::kReduceScatter, 4096.0 * 4096 * 2, {8, 8}));
  EXPECT_GT(cut.tensor_forward, all / 8);
  w.framework = FindFramework("torchtitan");  // sequence parallel, no overlap
  EXPECT_NEAR(LayerPassTimes(w, 0, {}, true).tensor_forward, all, 1e-9);
}

TEST(LayerTime, ARingHidesBehindAttentionAndOtherKindsDoNot) {
  Workload w = SmallJob();
  w.seq_len = 65536;
  w.mesh.cp = 4;
  // 2 hops x 16k tokens x 1024 elements x 2 x 2 B against attention over 16k x 16k.
  EXPECT_EQ(LayerPassTimes(w, 0, {}, false).context(), 0);
  const double slowed = LayerPassTimes(w, 0, {}, true).context();
  EXPECT_GT(slowed, 0);
  const double keys = 16384.0 * 2 * 1024 * 2;
  w.context = ContextKind::kAllGather;
  EXPECT_NEAR(LayerPassTimes(w, 0, {}, true).context(),
              2 * Collect(w, Collective::kAllGather, 4 * keys, {4, 4}) +
                  Collect(w, Collective::kReduceScatter, 4 * keys, {4, 4}),
              1e-9);
  w.context = ContextKind::kAllToAll;
  EXPECT_NEAR(LayerPassTimes(w, 0, {}, true).context(),
              2 * (Collect(w, Collective::kAllToAll, 16384.0 * (4096 + 2048) * 2, {4, 4}) +
                   Collect(w, Collective::kAllToAll, 16384.0 * 4096 * 2, {4, 4})),
              1e-9);
}

Workload WithExperts() {
  Workload w = SmallJob();
  SetExperts(w.model, model::Experts{.num_experts = 64, .top_k = 8, .ffn = 1408});
  w.mesh.dp_replicate = 16;
  w.mesh.ep = 16;
  w.global_batch = 16;
  return w;
}

TEST(LayerTime, NodeAwareDispatchSendsATokenOnceToANode) {
  Workload w = WithExperts();
  const double all_to_all = LayerPassTimes(w, 0, {}, false).expert();
  EXPECT_NEAR(all_to_all, 4 * Collect(w, Collective::kAllToAll, 4096.0 * 8 * 4096 * 2, {16, 8}), 1e-9);
  w.expert_dispatch = ExpertDispatch::kNodeAware;
  const double aware = LayerPassTimes(w, 0, {}, false).expert();
  // Of two nodes the other one is visited by nearly every token: one copy of the four that went there.
  const double network =
      4096.0 * 4096 * 2 * (2 * (1 - std::pow(0.5, 8)) / 2) / (50e9 * w.node->scale_out->all_to_all.value);
  EXPECT_GT(aware, 4 * network);
  EXPECT_LT(aware, 0.5 * all_to_all);
  // Beside another micro-batch nothing but what is longer than the passes remains.
  w.overlap_experts = true;
  EXPECT_LT(LayerPassTimes(w, 0, {}, false).expert(), aware);
}

TEST(LayerTime, FrozenWeightsHaveNoGradientProducts) {
  Workload w = SmallJob();
  const PassTimes trained = LayerPassTimes(w, 0, {}, true);
  w.frozen = true;
  const PassTimes frozen = LayerPassTimes(w, 0, {}, true);
  EXPECT_GT(trained.weight_backward, 0);
  EXPECT_EQ(frozen.weight_backward, 0);
  EXPECT_EQ(frozen.input_backward, trained.input_backward);
  EXPECT_LT(PriceTime(w).step_seconds, PriceTime(SmallJob()).step_seconds);
}

TEST(LayerTime, ARecomputationMayStopBeforeTheLastProduct) {
  // Of the products' work 3 x 14336 of the MLP's and 2 x 4096 + 2 x 1024 of attention's, a third of the
  // former is not done again.
  Workload w = SmallJob("torchtitan");
  w.recompute = RecomputeKind::kFull;
  const PassTimes times = LayerPassTimes(w, 0, {}, true);
  const double products = 1 - 14336.0 / (3 * 14336 + 2 * 4096 + 2 * 1024);
  EXPECT_NEAR(times.recompute / times.forward, products, 0.1);  // attention and norms come on top
  w.framework = FindFramework("megatron-core");
  const PassTimes whole = LayerPassTimes(w, 0, {}, true);
  EXPECT_NEAR(whole.recompute, whole.forward, 1e-12);
}

// torchtitan@6fc499f torchtitan/models/llama3/infra/parallelize.py:234-243 does not list cuDNN's kernel among
// what selective recompute keeps: it runs again, once.
TEST(LayerTime, AttentionThatIsNotListedRunsAgain) {
  Workload w = SmallJob("torchtitan");
  w.recompute = RecomputeKind::kSelective;
  const double listed = LayerPassTimes(w, 0, {}, true).recompute;
  double attention = 0;
  for (const WorkItem& item : WorkOfLayer(w, 0).items) {
    if (item.kind == WorkKind::kAttention) attention += OperatorSeconds(item, w).forward;
  }
  EXPECT_GT(attention, 0);
  w.recompute_attention = true;
  EXPECT_NEAR(LayerPassTimes(w, 0, {}, true).recompute - listed, attention, 1e-12);
}

TEST(LayerTime, WeightsAreCastForEveryMicroBatchUnlessTheyComeSo) {
  Workload w = SmallJob("torchtitan");
  w.precision = Precision::kFp8;
  const double cast = LayerPassTimes(w, 0, {}, true).forward;
  w.gathers_fp8 = true;
  // Largest value and cast, twice: eight bytes of 4096 x (6144 + 4096 + 2 x 14336 + 14336) weights, and 2 us
  // for each of the four kernels.
  const double bytes = 8 * 4096.0 * (6144 + 4096 + 2 * 14336 + 14336);
  EXPECT_NEAR(cast - LayerPassTimes(w, 0, {}, true).forward, bytes / (0.85 * 3.35e12) + 4 * 2e-6, 1e-9);
}

TEST(LayerTime, WithoutACompilerNormsAndGatesAreKernelByKernel) {
  // Of an element: two norms with 36 + 84 bytes against 4 + 10, and a gate whose activation is written and
  // read: 4 bytes of the product's width, 8 in the backward.
  Workload w = SmallJob("torchtitan");
  const double compiled = LayerPassTimes(w, 0, {}, true).total();
  w.framework = FindFramework("torchtitan-eager");
  // Compiled norms reach 0.64 of the nominal bandwidth, others 0.56, gates 0.85.
  const double norm = 4096.0 * 4096 * 2 / 3.35e12;
  const double gates = 4096.0 * 14336 * (4 + 8) / (0.85 * 3.35e12);
  EXPECT_NEAR(LayerPassTimes(w, 0, {}, true).total() - compiled, norm * (120 / 0.56 - 14 / 0.64) + gates,
              1e-9);
  w.fused_norms = true;
  EXPECT_NEAR(LayerPassTimes(w, 0, {}, true).total() - compiled, norm * (14 / 0.56 - 14 / 0.64) + gates,
              1e-9);
}

TEST(LayerTime, MetricsOfTrainingReadTheLogitsAgain) {
  // Two cross-entropies beside the loss: a logit is cast to fp32, 6 bytes each, and its log-softmax written,
  // 8 each, at 0.40 of the nominal bandwidth.
  const Workload w = SmallJob("fsdp1");
  FrameworkProfile plain = *w.framework;
  plain.logit_moved_bytes = plain.logit_row_bytes = 2 + 4;
  Workload without = w;
  without.framework = &plain;
  EXPECT_NEAR(HeadPassTimes(w).total() - HeadPassTimes(without).total(),
              4096.0 * 128256 * 2 * (6 / 0.85 + 8 / 0.40) / 3.35e12, 1e-9);
}

TEST(LayerTime, ASmallLayerWaitsForItsHost) {
  Workload w = SmallJob("fsdp1");
  w.seq_len = 16;
  w.model.hidden = 512;
  SetEach(w.model, &model::Mlp::ffn, 1024);
  SetEach(w.model, &model::Attention::heads, 8);
  SetEach(w.model, &model::Attention::kv_heads, 8);
  SetEach(w.model, &model::Attention::head_dim, 64);
  // Four products, attention and seven passes at least, 13.48 us each.
  const PassTimes eager = LayerPassTimes(w, 0, {}, true);
  EXPECT_GT(eager.ForwardPass(), 10 * 13.48e-6);
  w.launches_operators = false;
  EXPECT_LT(LayerPassTimes(w, 0, {}, true).ForwardPass(), eager.ForwardPass());
  // A large one does not.
  w.seq_len = 8192;
  const double graphs = LayerPassTimes(w, 0, {}, true).total();
  w.launches_operators = true;
  EXPECT_EQ(LayerPassTimes(w, 0, {}, true).total(), graphs);
}

// Seconds of the layer that `job` has and `without` has not, forward and backward.
PassTimes Difference(const Workload& job, const Workload& without) {
  PassTimes times = LayerPassTimes(job, 0, {}, true);
  times.Add(LayerPassTimes(without, 0, {}, true).Times(-1));
  return times;
}

TEST(LayerTime, WhatGptOssAddsToExpertsAreKernelsOfTheirOwn) {
  // 4,096 tokens to eight experts each, 4,096 wide: 12 bytes an element forward and 16 backward for the bias,
  // 28 and 40 where probabilities are fp32. Kernels of 2 us: of four local experts two each and one, six
  // each and one.
  Workload w = WithExperts();
  w.launches_operators = false;
  SetAllLinearBiases(w.model, true);
  Workload plain = w;
  SetEach(plain.model, &model::Mlp::bias, false);
  const double rate = simulate::BytesPerSecond(*w.device);
  const double elements = 4096.0 * static_cast<double>(FindExperts(w.model)->top_k * w.model.hidden);
  EXPECT_NEAR(Difference(w, plain).forward, 12 * elements / rate + 9 * 2e-6, 1e-9);
  EXPECT_NEAR(Difference(w, plain).input_backward, 16 * elements / rate + 25 * 2e-6, 1e-9);
  w.expert_dispatch = plain.expert_dispatch = ExpertDispatch::kNodeAware;
  EXPECT_NEAR(Difference(w, plain).forward, 28 * elements / rate + 9 * 2e-6, 1e-9);
  EXPECT_NEAR(Difference(w, plain).input_backward, 40 * elements / rate + 25 * 2e-6, 1e-9);
  // Clamps: r w of gate and product, r w of both joined; r r w and r w backward.
  w = plain;
  SetEach(w.model, &model::Mlp::clamped, true);
  const double columns =
      4096.0 * static_cast<double>(FindExperts(w.model)->top_k * 2 * FindExperts(w.model)->ffn);
  EXPECT_NEAR(Difference(w, plain).forward, 8 * columns / rate, 3e-6);
  EXPECT_NEAR(Difference(w, plain).input_backward, 10 * columns / rate, 3e-6);
  // Others have them in one kernel with the activation, or with the product.
  w.framework = plain.framework = FindFramework("torchtitan");
  EXPECT_EQ(Difference(w, plain).total(), 0);
}

TEST(LayerTime, HiddenExchangesAreTheShareThatAProfileShows) {
  // 36.55 % of them, where there is compute enough beside them.
  Workload w = WithExperts();
  w.expert_dispatch = ExpertDispatch::kNodeAware;
  const PassTimes apart = LayerPassTimes(w, 0, {}, true);
  w.overlap_experts = true;
  const PassTimes beside = LayerPassTimes(w, 0, {}, true);
  ASSERT_LT(apart.expert_forward, apart.forward);
  EXPECT_NEAR(beside.expert(), (1 - 0.3655) * apart.expert(), 1e-9);
}

TEST(LayerTime, RowsOfExpertsAreFilledUpInLowPrecision) {
  // In FP8 two copies of all that 8 of 64 experts get, in and out, 4 bytes an element, and as many backward;
  // none where the exchange itself pads.
  Workload w = WithExperts();
  w.launches_operators = false;
  w.precision = Precision::kMxfp8;
  const auto copies = [&] {
    int count = 0;
    for (const WorkItem& item : WorkOfLayer(w, 0).items) {
      if (item.pass != PassKind::kCopy) continue;
      EXPECT_EQ(item.moved_bytes, 4096.0 * 8 * 4096 * 4);
      ++count;
    }
    return count;
  };
  EXPECT_EQ(copies(), 2);
  w.expert_dispatch = ExpertDispatch::kNodeAware;
  EXPECT_EQ(copies(), 0);
  w.expert_dispatch = ExpertDispatch::kAllToAll;
  w.precision = Precision::kBf16;
  EXPECT_EQ(copies(), 0);
}

TEST(OperatorTime, ExpertsWithOddRowsArePadded) {
  // 65,536 rows of six experts are 10,922 2/3 each: 10,944 with 32 at a time, and no operand of odd rows.
  Workload w = SmallJob("megatron-bridge", "gb300-279gb");
  SetExperts(w.model, model::Experts{.num_experts = 384, .top_k = 8, .ffn = 2048});
  w.precision = Precision::kMxfp8;
  WorkItem item{.kind = WorkKind::kMatmul, .batch = 6, .rows = 65536.0 / 6, .inner = 7168, .columns = 4096};
  item.fp8 = item.expert = true;
  const ForwardBackward odd = OperatorSeconds(item, w);
  item.rows = 10944;
  const ForwardBackward even = OperatorSeconds(item, w);
  EXPECT_EQ(odd.forward, even.forward);
  EXPECT_EQ(odd.backward, even.backward);
}

TEST(OperatorTime, OneScaleForAnOperandIsFoundFirst) {
  // Two bytes an element more of 4,096 x 8,192, in FP8 alone, and one less for the transposed copy that
  // Blackwell does without; two kernels more, for that value and for its scale. The products take as long as
  // those of MXFP8.
  Workload w = SmallJob("megatron-bridge", "b200-180gb");
  WorkItem item{.kind = WorkKind::kMatmul, .rows = 4096, .inner = 8192, .columns = 8192};
  item.fp8 = true;
  w.precision = Precision::kMxfp8;
  const double blocks = OperatorSeconds(item, w).forward;
  w.precision = Precision::kFp8;
  const double byte = 4096.0 * 8192 / simulate::BytesPerSecond(*w.device);
  EXPECT_NEAR(OperatorSeconds(item, w).forward - blocks, byte + 2 * 2e-6, 1e-9);
}

TEST(OperatorTime, OperandsOfExpertsAreCastOneByOne) {
  // 16 experts: of MXFP8 15 kernels of 2 us more than of a plain product, of FP8 with current scaling 3 x 16
  // against 3. Products run four at a time.
  Workload w = SmallJob("megatron-bridge", "b200-180gb");
  WorkItem item{.kind = WorkKind::kMatmul, .batch = 16, .rows = 1024, .inner = 2048, .columns = 1536};
  item.fp8 = item.expert = true;
  const auto cast = [&](Precision precision) {
    w.precision = precision;
    const double product = simulate::MatmulSeconds(*w.device, precision, {4, 1024, 2048, 1536, 2}) * 4 + 2e-6;
    return OperatorSeconds(item, w).forward - product;
  };
  const double elements = 16.0 * 1024 * 2048 / simulate::BytesPerSecond(*w.device);
  EXPECT_NEAR(cast(Precision::kMxfp8), 4 * elements + 16 * 2e-6, 1e-9);
  EXPECT_NEAR(cast(Precision::kFp8), 5 * elements + 48 * 2e-6, 1e-9);
}

TEST(LayerTime, SmallKernelsOfExpertLayersFollowEachOther) {
  // 463,348 kernels of a step of 64 micro-batches and 48 layers (see framework.cc) are 151 a layer, 72 of
  // them of no operator here: 2 us each, a third in the forward.
  Workload w = WithExperts();
  w.launches_operators = false;
  FrameworkProfile without = *w.framework;
  without.expert_layer_kernels = 0;
  Workload none = w;
  none.framework = &without;
  EXPECT_NEAR(Difference(w, none).forward, 24 * 2e-6, 1e-8);
  EXPECT_NEAR(Difference(w, none).input_backward, 48 * 2e-6, 1e-8);
  SetExperts(w.model, std::nullopt);
  SetExperts(none.model, std::nullopt);
  EXPECT_EQ(Difference(w, none).total(), 0);
}

TEST(LayerTime, TheDeviceIdlesWhileTheHostWaitsForCounts) {
  // (24.7138 - 22.821) s of 64 micro-batches and 48 layers, in the forward alone.
  Workload w = WithExperts();
  FrameworkProfile without = *w.framework;
  without.waits_for_counts = false;
  Workload none = w;
  none.framework = &without;
  EXPECT_NEAR(Difference(w, none).total(), 1.8928 / 3072, 1e-9);
  EXPECT_NEAR(Difference(w, none).forward, 1.8928 / 3072, 1e-9);
  // Not where another micro-batch runs meanwhile, numbers are fixed, all is one graph, or nothing is sent.
  const auto waits = [&](auto&& change) {
    Workload a = w, b = none;
    change(a);
    change(b);
    return Difference(a, b).total();
  };
  EXPECT_EQ(waits([](Workload& x) { x.overlap_experts = true; }), 0);
  EXPECT_EQ(waits([](Workload& x) { x.drops_tokens = true; }), 0);
  EXPECT_EQ(waits([](Workload& x) { x.fused_experts = true; }), 0);
  EXPECT_EQ(waits([](Workload& x) { x.launches_operators = false; }), 0);
  EXPECT_EQ(waits([](Workload& x) { x.mesh.ep = 1; }), 0);
  EXPECT_EQ(waits([](Workload& x) { SetExperts(x.model, std::nullopt); }), 0);
}

TEST(OperatorTime, ProbabilitiesOfExpertsHaveAGradientOfTheirOwn) {
  // Gate, product and gradient read once more: three times two bytes an element.
  Workload w = WithExperts();
  double bytes = 0, seconds = 0;
  for (const WorkItem& item : WorkOfLayer(w, 0).items) {
    if (item.pass != PassKind::kGatedActivation || item.kind != WorkKind::kElementwise) continue;
    WorkItem plain = item;
    plain.expert = false;
    seconds += OperatorSeconds(item, w).backward - OperatorSeconds(plain, w).backward;
    bytes += item.moved_bytes;
  }
  EXPECT_EQ(bytes, 4096.0 * 8 * 1408 * 6);
  EXPECT_NEAR(seconds, bytes / simulate::BytesPerSecond(*w.device), 1e-9);
}

TEST(LayerTime, StretchedPositionsAreRotatedStepByStep) {
  // 24 bytes an element of queries and keys instead of 4, and 20 instead of 4 backward.
  Workload w = SmallJob();
  Workload fused = w;
  w.model.rope.scaling = model::RopeScaling{.kind = model::RopeScalingKind::kYarn};
  const double rotated = 4096.0 * (32 + 8) * 128;
  const double rate = simulate::BytesPerSecond(*w.device);
  EXPECT_NEAR(Difference(w, fused).forward, 20 * rotated / rate, 1e-9);
  EXPECT_NEAR(Difference(w, fused).input_backward, 16 * rotated / rate, 1e-9);
}

TEST(LayerTime, NormsOfQueriesAndKeysMoveThem) {
  // Four bytes an element forward, six backward (the profile's own figures), and 2 us for each kernel.
  Workload w = SmallJob();
  const Workload without = w;
  SetEach(w.model, &model::Attention::qk_norm, model::QkNorm::kHead);
  const double normed = 4096.0 * (32 + 8) * 128;
  const double rate = simulate::BytesPerSecond(*w.device);
  EXPECT_NEAR(Difference(w, without).forward, 4 * normed / rate + 2e-6, 1e-9);
  EXPECT_NEAR(Difference(w, without).input_backward, 6 * normed / rate + 2e-6, 1e-9);
}

TEST(LayerWork, AWindowLimitsTheKeysThatAQuerySees) {
  Workload w = SmallJob();
  const auto keys = [&] {
    for (const WorkItem& item : WorkOfLayer(w, 0).items) {
      if (item.kind == WorkKind::kAttention) return item.inner;
    }
    return 0.0;
  };
  EXPECT_EQ(keys(), 2048);
  // 128 each, but for the first 128 queries half of that: 128 - 128 * 64 / 4096.
  SetWindow(w.model, 128);
  EXPECT_EQ(keys(), 126);
  SetWindow(w.model, 128, /*period=*/2);
  EXPECT_EQ(keys(), (126 + 2048) / 2.0);
  SetWindow(w.model, 100'000);  // longer than the sequence
  EXPECT_EQ(keys(), 2048);
}

TEST(LayerTime, ModulesAreRecomputedAlone) {
  Workload w = WithExperts();
  w.recompute = RecomputeKind::kSelective;
  const auto again = [&](uint32_t modules) {
    w.recompute_modules = modules;
    return LayerPassTimes(w, 0, {}, true).recompute;
  };
  EXPECT_GT(again(kCoreAttention), 0);  // around any kernel (Megatron's _checkpointed_attention_forward)
  EXPECT_EQ(again(kPlainMlp), 0);       // this layer has none
  EXPECT_GT(again(kLayerNorms), 0);
  EXPECT_GT(again(kExpertActivation), 0);
  EXPECT_GT(again(kWholeExperts), 5 * again(kExpertActivation));
  EXPECT_NEAR(again(kLayerNorms | kExpertActivation), again(kLayerNorms) + again(kExpertActivation), 1e-12);
  SetExperts(w.model, std::nullopt);
  EXPECT_GT(again(kPlainMlp), 0);
  // Its two products are most of an MLP, which is most of the products.
  EXPECT_GT(again(kPlainMlp), 0.5 * LayerPassTimes(w, 0, {}, true).forward);
}

TEST(LayerTime, OffloadIsExposedWhereTheHostLinkIsSlower) {
  Workload w = SmallJob();
  const PassTimes kept = LayerPassTimes(w, 0, {}, true);
  const PassTimes offloaded = LayerPassTimes(w, 0, {.offloaded = true}, true);
  const double copy = SavedBytes(WorkOfLayer(w, 0), w) / HostLinkBytesPerSecond(*w.device);
  EXPECT_NEAR(offloaded.ForwardPass(), std::max(kept.ForwardPass(), copy), 1e-12);
  EXPECT_NEAR(offloaded.BackwardPass(), std::max(kept.BackwardPass(), copy), 1e-12);
  // 64 GB/s at most between an H100 and its host; nothing to wait for at 225 of a GB200.
  EXPECT_GT(offloaded.offload(), 0);
}

TEST(PriceTime, FasterLinksAreNeverSlowerWithoutContention) {
  for (const char* framework : {"megatron-core", "megatron-deepspeed", "torchtitan", "fsdp1", "internevo"}) {
    Workload w = SmallJob(framework);
    w.mesh.dp_shard = 16;
    w.mesh.tp = 2;
    w.global_batch = 32;
    for (const int zero : {0, 1, 2, 3}) {
      w.zero_stage = zero;
      double before = 1e9;
      for (const double factor : {0.1, 0.5, 1.0, 2.0, 10.0}) {
        cluster::Link fast = *w.node->scale_up, far = *w.node->scale_out;
        fast.bandwidth.value *= factor;
        far.bandwidth.value *= factor;
        cluster::Node node = *w.node;
        node.scale_up = &fast;
        node.scale_out = &far;
        Workload changed = w;
        changed.node = &node;
        const double seconds = PriceTime(changed, {.contention = false}).step_seconds;
        EXPECT_LE(seconds, before * (1 + 1e-12)) << framework << " zero " << zero << " x" << factor;
        EXPECT_LE(seconds, PriceTime(changed).step_seconds * (1 + 1e-12));
        before = seconds;
      }
    }
  }
}

}  // namespace
}  // namespace trainctl::frameworks
