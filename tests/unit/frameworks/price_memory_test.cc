#include "frameworks/price_memory.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cluster/catalogue.h"
#include "frameworks/device_memory.h"
#include "frameworks/framework.h"
#include "frameworks/layer_work.h"
#include "frameworks/pipeline_rank.h"
#include "model/architecture.h"
#include "model/parameters.h"
#include "model/presets.h"

namespace trainctl::frameworks {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Llama 3.2 3B (config.json of meta-llama/Llama-3.2-3B).
Workload Llama3b() {
  Workload w;
  w.model = model::LlamaOf({.layers = 28,
                            .hidden = 3072,
                            .ffn = 8192,
                            .heads = 24,
                            .kv_heads = 8,
                            .head_dim = 128,
                            .vocab = 128256});
  w.model.tie_embeddings = true;
  w.seq_len = 4096;
  w.micro_batch = 2;
  w.global_batch = 2;
  w.framework = FindFramework("torchtune");
  w.device = cluster::FindDevice("A100-80GB")->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
  return w;
}

double Part(const MemoryPrice& price, MemoryPart part) { return price.parts[static_cast<size_t>(part)]; }

// A mixture of experts with latent attention, two tensor-parallel ranks.
Workload Mixture() {
  Workload w = Llama3b();
  w.model = model::LlamaOf({.layers = 4,
                            .hidden = 2048,
                            .ffn = 11264,
                            .heads = 16,
                            .kv_heads = 16,
                            .head_dim = 128,
                            .vocab = 163840});
  SetExperts(w.model, model::Experts{.num_experts = 64, .top_k = 6, .ffn = 1408, .shared_ffn = 2816},
             /*dense_layers=*/1);
  SetEach(w.model, &model::Attention::latent,
          model::LatentAttention{
              .query_rank = 0, .key_value_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128});
  w.framework = FindFramework("megatron-bridge");
  w.micro_batch = 1;
  w.global_batch = 4;
  w.mesh = {.dp_shard = 4, .tp = 2, .ep = 8};
  w.zero_stage = 1;
  return w;
}

TEST(PriceMemory, PartsAddUpAtThePeakOfAnyJob) {
  for (const char* framework : {"megatron-core", "megatron-bridge", "megatron-deepspeed", "fsdp1",
                                "torchtitan", "torchtune", "internevo"}) {
    for (RecomputeKind recompute : {RecomputeKind::kNone, RecomputeKind::kSelective, RecomputeKind::kFull}) {
      for (int64_t pp : {1, 4}) {
        Workload w = Llama3b();
        w.framework = FindFramework(framework);
        w.recompute = recompute;
        w.global_batch = 16;
        w.mesh.pp = pp;
        const MemoryPrice price = PriceMemory(w);
        double sum = 0;
        for (double part : price.parts) sum += part;
        EXPECT_NEAR(sum - Part(price, MemoryPart::kOutside), price.allocated_bytes, 1) << framework;
        EXPECT_LE(price.allocated_bytes, price.reserved_bytes);
        EXPECT_LT(price.reserved_bytes, price.device_bytes);
        EXPECT_LT(price.device_bytes, price.upper_bytes);
      }
    }
  }
}

// Of one micro-batch gradients come as activations go: the loss has the one, the end of the backward the
// other.
TEST(PriceMemory, APeakIsAtOneMoment) {
  Workload w = Llama3b();
  const MemoryPrice kept = PriceMemory(w);
  EXPECT_EQ(kept.moment, MemoryMoment::kLoss);
  EXPECT_DOUBLE_EQ(Part(kept, MemoryPart::kGradients), 0);
  EXPECT_GT(Part(kept, MemoryPart::kLogits), 0);
  // Few tokens: everything but the gradients is small.
  w.seq_len = 128;
  const MemoryPrice small = PriceMemory(w);
  EXPECT_EQ(small.moment, MemoryMoment::kEnd);
  const double parameters = static_cast<double>(NumParameters(w.model)) - static_cast<double>(w.model.hidden);
  EXPECT_NEAR(Part(small, MemoryPart::kGradients), 2 * parameters, 1e-6 * parameters);
  EXPECT_DOUBLE_EQ(Part(small, MemoryPart::kActivations), 0);
  // A second micro-batch finds the gradients of the first.
  w = Llama3b();
  w.global_batch = 4;
  EXPECT_GT(Part(PriceMemory(w), MemoryPart::kGradients), 0);
}

// InternEvo's step: bf16 weights and gradients 2 + 2, master copy and moments 12, the gradients flat in bf16
// and in fp32, and AdamW's two temporary buffers 2 + 4 + 8 (its hybrid_zero_optim.py:745-764; torch 2.0's
// adamw).
TEST(PriceMemory, AnOptimizerMayNeedMoreThanThePasses) {
  Workload w = Llama3b();
  w.framework = FindFramework("internevo");
  w.zero_stage = 1;
  w.recompute = RecomputeKind::kFull;
  w.seq_len = 128;
  w.model.vocab = 1000;
  SetNumLayers(w.model, 14);
  const MemoryPrice price = PriceMemory(w);
  EXPECT_EQ(price.moment, MemoryMoment::kStep);
  const double parameters = static_cast<double>(NumParameters(w.model)) - static_cast<double>(w.model.hidden);
  EXPECT_NEAR(price.allocated_bytes / parameters, 28, 1e-3);
  EXPECT_GE(price.reserved_bytes / parameters, 34);
  EXPECT_DOUBLE_EQ(Part(price, MemoryPart::kActivations), 0);
}

// Its fully sharded way: a bf16 shard, and a fp32 copy of it with the moments (fsdp_optimizer.py:55-63).
TEST(PriceMemory, AShardMayBeThereInTwoPrecisions) {
  Workload w = Llama3b();
  w.framework = FindFramework("internevo");
  w.mesh = {.dp_shard = 4};
  w.zero_stage = 3;
  w.global_batch = 8;
  const double parameters = static_cast<double>(NumParameters(w.model)) - static_cast<double>(w.model.hidden);
  const MemoryPrice two = PriceMemory(w);
  EXPECT_NEAR(Part(two, MemoryPart::kParameters), parameters / 4 * 2, 1);
  EXPECT_NEAR(Part(two, MemoryPart::kOptimizer), parameters / 4 * (4 + 8), 1);
  w.framework = FindFramework("torchtitan");
  const MemoryPrice one = PriceMemory(w);
  EXPECT_NEAR(Part(one, MemoryPart::kParameters), parameters / 4 * 4, 1);
  EXPECT_NEAR(Part(one, MemoryPart::kOptimizer), parameters / 4 * 8, 1);
}

// The precision-aware optimizer: beside bf16 weights both moments of the experts, the larger group, as fp32;
// in low precision the gradients of all as fp32 too.
TEST(PriceMemory, HalfMomentsAreUnpackedForTheUpdate) {
  Workload w = Mixture();
  w.half_moments = true;
  w.optimizer_bytes = 6;
  const double routed = 3.0 * 8 * (3 * 2048 * 1408);  // three layers of experts, eight of 64 on a rank
  const MemoryPrice bf16 = PriceMemory(w);
  EXPECT_DOUBLE_EQ(bf16.At(MemoryMoment::kStep).work, routed * (4 + 4));
  w.precision = Precision::kFp8;
  w.optimizer_bytes = 8;
  const MemoryPrice fp8 = PriceMemory(w);
  const double updated = Part(fp8, MemoryPart::kOptimizer) / 8;
  EXPECT_GT(updated, routed);
  EXPECT_DOUBLE_EQ(fp8.At(MemoryMoment::kStep).work, updated * 4 + routed * (4 + 4));
  w.half_moments = false;
  EXPECT_DOUBLE_EQ(PriceMemory(w).At(MemoryMoment::kStep).work, updated * 4);
}

// Llama 3 70B in FP8 on 32 H100, tp 8 x pp 4, counted by hand. Of a layer 8192 (8192 + 2 x 1024) + 8192^2 +
// 3 x 8192 x 28672 = 855,638,016 weights; of the last stage 20 / 8 of that, 2,139,095,040, 2 x 20 norms of
// 8192, and an eighth of 129,024 x 8192 of the output matrix with its last norm. Weights are there in FP8 and
// transposed (2 bytes), gradients in bf16 (2), master copy and moments (12); for the update all gradients in
// fp32 (4) and all master weights in bf16 (2); of the rest the same but weights in bf16 and no cast. That is
// 49.7e9 bytes; Megatron-Bridge measured 50.2 (skills/nemo-mbridge-perf-memory-tuning/SKILL.md@067f987:187).
TEST(PriceMemory, MasterWeightsPassThroughBf16OnTheirWayToFp8) {
  Workload w;
  w.model = *model::Preset("llama3.1-70b");
  w.seq_len = 4096;
  w.global_batch = 32;
  w.framework = FindFramework("megatron-bridge");
  w.device = cluster::FindDevice("H100-80GB")->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
  w.precision = Precision::kFp8;
  w.weights_in_fp8 = w.transposed_weights = true;
  w.mesh = {.pp = 4, .tp = 8};
  w.virtual_stages = 5;
  w.zero_stage = 1;
  const double matrices = 2'139'095'040, table = 129'024.0 * 8192 / 8;
  const double step = matrices * (2 + 2 + 12 + 4 + 2) + table * (2 + 2 + 12 + 4);
  // Norms, which the product's weights are not cast with, are a fifth of a thousandth.
  EXPECT_NEAR(PriceMemory(w).first_step_bytes / step, 1, 5e-4);
  EXPECT_NEAR(step, 49.7e9, 0.05e9);
  // With a device whose products read both ways there is no second copy.
  w.transposed_weights = false;
  EXPECT_NEAR(PriceMemory(w).first_step_bytes / (step - matrices), 1, 5e-4);
  // Two replicas: the update is of half of it.
  w.mesh.dp_shard = 2;
  const double half = matrices * (1 + 2 + 9) + table * (2 + 2 + 8);
  EXPECT_NEAR(PriceMemory(w).first_step_bytes / half, 1, 5e-4);
}

// Moments come to be in the first update: passes of the first step find 8 bytes less of each parameter. One
// device with so much kept that passes are the peak with and without.
TEST(PriceMemory, TheFirstStepsPassesHaveNoMoments) {
  Workload w = Mixture();
  w.seq_len = 65536;
  const MemoryPrice price = PriceMemory(w);
  EXPECT_EQ(price.Of(MemoryMetric::kFirstStep), price.first_step_bytes);
  ASSERT_NE(price.moment, MemoryMoment::kStep);
  const double updated = Part(price, MemoryPart::kOptimizer) / 12;
  EXPECT_NEAR(price.allocated_bytes - price.first_step_bytes, updated * 8, 1);
  w.half_moments = true;
  w.optimizer_bytes = 6;
  const MemoryPrice half = PriceMemory(w);
  EXPECT_NEAR(half.allocated_bytes - half.first_step_bytes, updated * 4, 1);
}

// DeepSpeed's reduction before the step: of fp16 gradients one bucket of 500 million at a time, of those of
// its bf16 optimizer a bf16 copy of all; both too large for what the passes freed.
TEST(PriceMemory, GradientsAreCopiedToBeReduced) {
  Workload w = Llama3b();
  w.framework = FindFramework("megatron-deepspeed");
  w.recompute = RecomputeKind::kFull;
  w.precision = Precision::kFp16;
  w.mesh = {.dp_shard = 4};
  w.zero_stage = 1;
  w.global_batch = 16;
  const double parameters = static_cast<double>(NumParameters(w.model)) - static_cast<double>(w.model.hidden);
  const MemoryPrice fp16 = PriceMemory(w);
  // Flat gradients of a quarter, 2 + 4 bytes each. That quarter, 0.8 thousand million, needs more than a
  // bucket.
  EXPECT_NEAR((fp16.device_bytes - fp16.needed_bytes) / (parameters / 4 * 6 + 5e8 * 2), 1, 1e-3);
  w.mesh = {.dp_shard = 8};
  w.zero_stage = 1;
  w.global_batch = 32;
  const MemoryPrice eight = PriceMemory(w);  // an eighth takes the bucket's block
  EXPECT_NEAR((eight.device_bytes - eight.needed_bytes) / (parameters / 8 * 4 + 5e8 * 2), 1, 1e-3);
  w.precision = Precision::kBf16;
  const MemoryPrice bf16 = PriceMemory(w);
  EXPECT_NEAR((bf16.device_bytes - bf16.needed_bytes) / (parameters * 2), 1, 1e-3);
  // What is there then has to fit: weights, gradients in two precisions and their copy.
  w.seq_len = 16;
  SetNumLayers(w.model, 200);
  const MemoryPrice deep = PriceMemory(w);
  const double all = static_cast<double>(NumParameters(w.model));
  EXPECT_EQ(deep.moment, MemoryMoment::kStep);
  EXPECT_NEAR(deep.allocated_bytes / all, 2 + 2 + 4 + 12.0 / 8 + 2, 1e-3);
  EXPECT_GE(deep.needed_bytes, deep.allocated_bytes);
}

// Of a fully sharded model a block's working set is there twice, unless the allocator's segments grow, which
// they do not on AMD's devices.
TEST(PriceMemory, SegmentsThatGrowLeaveNoHoles) {
  Workload w = Llama3b();
  w.framework = FindFramework("torchtitan");
  w.recompute = RecomputeKind::kSelective;
  w.mesh = {.dp_shard = 8};
  w.zero_stage = 3;
  w.global_batch = 16;
  const MemoryPrice grown = PriceMemory(w);
  w.device = cluster::FindDevice("MI300X")->device;
  const MemoryPrice cut = PriceMemory(w);
  EXPECT_DOUBLE_EQ(cut.allocated_bytes, grown.allocated_bytes);
  EXPECT_NEAR(cut.reserved_bytes - grown.reserved_bytes, cut.At(MemoryMoment::kBackward).work, 1);
}

TEST(PriceMemory, DualPipeHasTheModelTwice) {
  Workload w = Llama3b();
  w.framework = FindFramework("megatron-core");
  w.model.tie_embeddings = false;
  w.mesh.pp = 4;
  w.global_batch = 32;
  const MemoryPrice plain = PriceMemory(w);
  w.pipeline = schedule::PipelineKind::kDualPipe;
  const MemoryPrice dual = PriceMemory(w);
  // The outer ranks have both tables, the first one's and the last one's.
  EXPECT_GT(Part(dual, MemoryPart::kParameters), 1.99 * Part(plain, MemoryPart::kParameters));
  // p + 1 stages of activations against p: of the same size.
  EXPECT_NEAR(Part(dual, MemoryPart::kActivations) / Part(plain, MemoryPart::kActivations), 5.0 / 4, 0.01);
}

TEST(PriceMemory, RecomputedAndOffloadedLayersAreCounted) {
  Workload w = Llama3b();
  w.framework = FindFramework("megatron-core");
  const double none = Part(PriceMemory(w), MemoryPart::kActivations);
  w.recompute = RecomputeKind::kFull;
  const double all = Part(PriceMemory(w), MemoryPart::kActivations);
  w.recomputed_layers = 7;
  EXPECT_NEAR(Part(PriceMemory(w), MemoryPart::kActivations), 0.25 * all + 0.75 * none, 1);
  w.recompute = RecomputeKind::kNone;
  w.offloaded_layers = 14;
  const MemoryPrice half = PriceMemory(w);
  EXPECT_NEAR(Part(half, MemoryPart::kActivations), none / 2, 0.01 * none);
  EXPECT_NEAR(half.host_bytes, none / 2, 0.01 * none);
}

// ZeRO-2 keeps a shard, but a block's gradient is whole, in fp32, before it is scattered.
TEST(PriceMemory, AGradientIsWholeBeforeItIsScattered) {
  Workload w = Llama3b();
  const FrameworkProfile plain = {.sequence_parallel = true, .logit_bytes = 4};
  w.framework = &plain;
  w.mesh.dp_shard = 8;
  w.global_batch = 8 * 16;
  w.zero_stage = 1;
  const MemoryPrice whole = PriceMemory(w);
  w.zero_stage = 2;
  const MemoryPrice sharded = PriceMemory(w);
  const RankParameters own = ParametersOfRank(w, 0);
  EXPECT_NEAR(sharded.At(MemoryMoment::kEnd).gradients, whole.At(MemoryMoment::kEnd).gradients / 8, 1);
  EXPECT_NEAR(sharded.At(MemoryMoment::kBackward).work - whole.At(MemoryMoment::kBackward).work,
              own.largest_layer * 4, 1);
}

TEST(PriceMemory, AnOptimizerOnTheHostIsThere) {
  Workload w = Llama3b();
  w.framework = FindFramework("megatron-core");
  const MemoryPrice here = PriceMemory(w);
  w.optimizer_on_host = true;
  const MemoryPrice there = PriceMemory(w);
  EXPECT_DOUBLE_EQ(Part(there, MemoryPart::kOptimizer), 0);
  // fp32 master copy, two moments and the gradient: 16 bytes.
  EXPECT_NEAR(there.host_bytes, Part(here, MemoryPart::kOptimizer) / 12 * 16, 1);
}

TEST(PriceMemory, ContextParallelKindsHaveTheirBuffers) {
  Workload w = Llama3b();
  w.framework = FindFramework("megatron-core");
  w.micro_batch = 1;
  w.seq_len = 131072;
  w.mesh.cp = 8;
  w.loss_chunks = 64;
  const double keys = 131072.0 / 8 * 2 * 8 * 128 * 2;  // bytes of this rank's keys and values
  w.context = ContextKind::kRing;
  const double ring = PriceMemory(w).allocated_bytes;
  w.context = ContextKind::kAllGather;
  EXPECT_NEAR(PriceMemory(w).allocated_bytes - ring, 2 * keys * 7, 1);
  w.context = ContextKind::kAllToAll;
  const double queries = 131072.0 / 8 * 24 * 128 * 2;
  EXPECT_NEAR(PriceMemory(w).allocated_bytes - ring, 2 * queries + keys - 2 * keys, 1);
}

// Megatron Core's modules by what their checkpoints keep (megatron/core/transformer/transformer_config.py,
// recompute_modules).
TEST(SavedBytes, EachModuleDropsWhatItFormsAgain) {
  Workload w = Mixture();
  w.recompute = RecomputeKind::kSelective;
  const double tokens = 4096;
  const double routed = tokens / 2 * 6;
  const auto kept = [&](uint32_t modules, int64_t layer) {
    w.recompute_modules = modules;
    return SavedBytes(WorkOfLayer(w, layer), w);
  };
  const double none = kept(0, 1);
  // Of a fused kernel the statistics of the softmax, four bytes a query and head: over Moonlight's 27 layers
  // 3.5 MB, of which Megatron-Bridge measured 4
  // (skills/nemo-mbridge-perf-activation-recompute/SKILL.md@067f987, 36.618 and 36.614 GB). The output stays:
  // it is what the projection keeps.
  EXPECT_DOUBLE_EQ(none - kept(kCoreAttention, 1), tokens * 8 * 4);
  EXPECT_DOUBLE_EQ(none - kept(kExpertActivation, 1), routed * 1408 * 2);
  EXPECT_DOUBLE_EQ(none - kept(kLatentUp, 1), tokens * 8 * (192 + 192 + 128) * 2);
  EXPECT_DOUBLE_EQ(none - kept(kSharedExperts, 1), tokens * 2816 / 2 * 3 * 2);
  EXPECT_DOUBLE_EQ(none - kept(kWholeExperts, 1), routed * (2048 + 3 * 1408) * 2 + tokens * 2816 / 2 * 3 * 2);
  EXPECT_DOUBLE_EQ(none - kept(kLayerNorms, 1), 2 * tokens / 2 * 2048 * 2);
  EXPECT_DOUBLE_EQ(none - kept(kPlainMlp, 1), 0);  // a layer of experts has none
  EXPECT_DOUBLE_EQ(kept(0, 0) - kept(kPlainMlp, 0), tokens * 11264 / 2 * 3 * 2);
}

// In low precision the projection keeps a copy of its own, so that the output of attention goes too.
TEST(SavedBytes, ACheckpointAroundAttentionDropsAnOutputThatNobodyElseKeeps) {
  Workload w = Mixture();
  w.recompute = RecomputeKind::kSelective;
  w.precision = Precision::kFp8;
  w.recompute_modules = 0;
  const double all = SavedBytes(WorkOfLayer(w, 1), w);
  w.recompute_modules = kCoreAttention;
  EXPECT_DOUBLE_EQ(all - SavedBytes(WorkOfLayer(w, 1), w), 4096.0 * 8 * (128 * 2 + 4));
}

// Where the norm is part of the product behind it there is nothing to recompute.
TEST(SavedBytes, ANormThatIsPartOfAProductStays) {
  Workload w = Mixture();
  SetEach(w.model, &model::Attention::latent, std::nullopt);
  w.recompute = RecomputeKind::kSelective;
  const auto dropped = [&](int64_t layer) {
    w.recompute_modules = 0;
    const double all = SavedBytes(WorkOfLayer(w, layer), w);
    w.recompute_modules = kLayerNorms;
    return all - SavedBytes(WorkOfLayer(w, layer), w);
  };
  EXPECT_DOUBLE_EQ(dropped(0), 0);                      // a dense layer
  EXPECT_DOUBLE_EQ(dropped(1), 4096.0 / 2 * 2048 * 2);  // the one before the experts alone
}

TEST(SavedBytes, ExpertsOfTwoTensorRanksSeeTheTokensOfBoth) {
  Workload w = Mixture();
  const double one = SavedBytes(WorkOfLayer(w, 1), w);
  w.mesh.ep = 4;
  w.mesh.etp = 2;
  // Twice the inputs of the experts, the rest of them cut in two.
  EXPECT_DOUBLE_EQ(SavedBytes(WorkOfLayer(w, 1), w) - one, 4096.0 / 2 * 6 * 2048 * 2);
}

TEST(DeviceMemory, ACommunicatorHasBuffersByChannelAndConnection) {
  Workload w = Llama3b();
  w.framework = FindFramework("megatron-deepspeed");
  // 4 MiB + 120 x 640 x 8 x 8 + 8 x 512 x 8 x 16 bytes a connection; 24 channels, a ring and a tree up and
  // down.
  EXPECT_DOUBLE_EQ(CommunicatorBytes(w, 8, 8), 24 * 3 * (4194304.0 + 4915200 + 524288));
  EXPECT_DOUBLE_EQ(CommunicatorBytes(w, 1, 1), 0);
  EXPECT_GT(OutsideBytes(w), 1.5 * kGiB);
}

}  // namespace
}  // namespace trainctl::frameworks
