#include "frameworks/bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "cluster/catalogue.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"
#include "schedule/build_step.h"
#include "tests/unit/num_cases.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

class RandomWorkloads {
 public:
  explicit RandomWorkloads(uint64_t seed) : random_(seed) {}

  // A valid one.
  Workload Next() {
    for (;;) {
      const Workload workload = Any();
      if (Validate(workload).ok()) return workload;
    }
  }

 private:
  Workload Any() {
    Workload w;
    const int64_t heads = Pick<int64_t>({4, 6, 8, 12, 16, 32, 64});
    const int64_t head_dim = Pick<int64_t>({64, 128});
    w.model = model::LlamaOf({.layers = Between(1, Chance(0.3) ? 80 : 12),
                              .hidden = heads * head_dim,
                              .ffn = heads * head_dim * Between(2, 4),
                              .heads = heads,
                              .kv_heads = heads / Pick<int64_t>({1, 2}),
                              .head_dim = head_dim,
                              .vocab = Pick<int64_t>({1000, 32000, 128256})});
    SetEach(w.model, &model::Mlp::gated, Chance(0.7));
    SetAllLinearBiases(w.model, Chance(0.2));
    w.model.norm.kind = Chance(0.3) ? model::NormKind::kLayer : model::NormKind::kRms;
    w.model.tie_embeddings = Chance(0.3);
    w.model.dropout = Chance(0.1);
    w.model.learned_positions = Chance(0.1) ? 2048 : 0;
    if (Chance(0.35)) {
      SetExperts(w.model,
                 model::Experts{.num_experts = Pick<int64_t>({4, 6, 8, 64}),
                                .top_k = Between(1, 4),
                                .ffn = heads * 32,
                                .shared_ffn = Chance(0.3) ? heads * 32 : 0},
                 Chance(0.4) ? Between(0, NumLayers(w.model)) : 0);
    }
    if (Chance(0.15)) {
      SetEach(w.model, &model::Attention::latent,
              model::LatentAttention{.query_rank = Chance(0.5) ? 256 : 0,
                                     .key_value_rank = 128,
                                     .nope_dim = 64,
                                     .rope_dim = 32,
                                     .value_dim = 64});
    }
    w.seq_len = Pick<int64_t>({256, 2048, 8192, 32768});
    w.micro_batch = Pick<int64_t>({1, 1, 2, 4});
    w.precision = Pick<Precision>({Precision::kBf16, Precision::kBf16, Precision::kFp16, Precision::kFp32,
                                   Precision::kFp8, Precision::kMxfp8});
    w.recompute =
        Pick<RecomputeKind>({RecomputeKind::kNone, RecomputeKind::kSelective, RecomputeKind::kFull});
    if (w.recompute == RecomputeKind::kFull && Chance(0.4)) w.recomputed_layers = Between(0, 10);
    w.device =
        cluster::FindDevice(Pick<const char*>({"h100", "a100", "v100", "mi300x", "b200", "l40s"}))->device;
    w.node = &cluster::DefaultNodeFor(*w.device);
    w.framework =
        &Frameworks()[static_cast<size_t>(Between(0, static_cast<int64_t>(Frameworks().size()) - 1))];
    w.mesh.tp = Pick<int64_t>({1, 1, 2, 4, 8, 16});
    w.mesh.pp = Pick<int64_t>({1, 1, 2, 3, 4, 8});
    w.mesh.cp = Pick<int64_t>({1, 1, 2, 4});
    const int64_t dp = Pick<int64_t>({1, 2, 3, 8, 32, 256});
    w.mesh.dp_replicate = dp;
    if (FindExperts(w.model) != nullptr) {
      w.mesh.ep = Pick<int64_t>({1, 2, 4, 8});
      w.mesh.etp = Chance(0.3) ? w.mesh.tp : 1;
      if (!w.mesh.HasExpertView()) w.mesh.ep = w.mesh.etp = 1;
    }
    w.global_batch = w.micro_batch * dp * Between(1, Chance(0.2) ? 40 : 10);
    w.zero_stage = static_cast<int>(Between(0, 3));
    if (w.zero_stage > 0) {
      w.mesh.dp_shard = Pick<int64_t>({1, 2, 3, 8, 32, 256});
      if (dp % w.mesh.dp_shard != 0) w.mesh.dp_shard = dp;
      w.mesh.dp_replicate = dp / w.mesh.dp_shard;
    }
    w.context = Pick<ContextKind>({ContextKind::kRing, ContextKind::kAllGather, ContextKind::kAllToAll});
    if (Chance(0.5)) w.sequence_parallel = Chance(0.5);
    w.activations_on_host = Chance(0.1);
    w.optimizer_on_host = Chance(0.15);
    w.optimizer_in_backward = Chance(0.05);
    w.loss_chunks = Pick<int64_t>({1, 1, 1, 8});
    if (Chance(0.2)) w.tuning.reserved_share = Chance(0.5) ? 0.3 : 2;
    if (w.mesh.pp > 1) {
      w.pipeline = static_cast<PipelineKind>(Between(0, schedule::kNumPipelineKinds - 1));
      const schedule::PipelineLimits limits = schedule::LimitsOf(*w.pipeline);
      w.virtual_stages = Between(limits.min_virtual_stages, std::min(limits.max_virtual_stages, 4));
    }
    const int64_t stages = w.mesh.pp * w.virtual_stages;
    if (stages > 1 && stages <= NumLayers(w.model) && Chance(0.2)) {
      w.stage_layers.assign(static_cast<size_t>(stages), 1);
      for (int64_t rest = NumLayers(w.model) - stages; rest > 0; --rest) {
        ++w.stage_layers[static_cast<size_t>(Between(0, stages - 1))];
      }
    }
    return w;
  }

  template <typename T>
  T Pick(std::vector<T> values) {
    return values[static_cast<size_t>(Between(0, static_cast<int64_t>(values.size()) - 1))];
  }
  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  int64_t Between(int64_t low, int64_t high) { return std::uniform_int_distribution(low, high)(random_); }

  std::mt19937_64 random_;
};

std::string Describe(const Workload& w) {
  return absl::StrCat(
      w.framework->name, " ", w.device->name, " layers ", NumLayers(w.model), " hidden ", w.model.hidden,
      " vocab ", w.model.vocab, " tied ", w.model.tie_embeddings, " dropout ", w.model.dropout, " experts ",
      FindExperts(w.model) != nullptr ? FindExperts(w.model)->num_experts : 0, " dense ",
      FindExperts(w.model) != nullptr ? NumDenseLayers(w.model) : 0, " seq ", w.seq_len, " mb ",
      w.micro_batch, " x ", w.num_micro_batches(), " tp ", w.mesh.tp, " pp ", w.mesh.pp, " ",
      schedule::PipelineKindName(w.Pipeline()), " v ", w.virtual_stages, " cp ", w.mesh.cp, " ep ", w.mesh.ep,
      " etp ", w.mesh.etp, " dp ", w.mesh.data_degree(), " zero ", w.zero_stage, "/", w.mesh.dp_shard,
      " recompute ", static_cast<int>(w.recompute), "/", w.recomputed_layers.value_or(-1), " cut ",
      w.stage_layers.size(), " host ", w.activations_on_host, w.optimizer_on_host, w.optimizer_in_backward);
}

double TimeBoundOf(const Workload& w, const LayerTerms& terms, const PipelineLoad& load) {
  const int64_t recomputed = w.recomputed_layers.value_or(kAllLayers);
  const double passes =
      PassSecondsBound(terms, load, w.Pipeline(), w.num_micro_batches(), recomputed, w.zero_stage);
  return passes + StateSecondsBound(StateTermsOf(w), FirstRankSeconds(terms, load),
                                    static_cast<double>(w.num_micro_batches()));
}

double MemoryBoundOf(const Workload& w, const LayerTerms& terms, const PipelineLoad& load) {
  const MemoryTerms memory =
      MemoryTermsOf(terms, load, w, w.num_micro_batches(), w.recomputed_layers.value_or(kAllLayers));
  return MemoryBytesBound(terms, memory, StateBytesOf(w), StateTermsOf(w).outside_bytes);
}

// Of random workloads, how many bounds are above the price, and how many so far below that they say nothing.
template <typename Price, typename Bound>
void ExpectBounds(uint64_t seed, const Price& price, const Bound& bound) {
  RandomWorkloads random(seed);
  int wrong = 0, loose = 0;
  constexpr int kCases = NumCases(30'000);
  for (int i = 0; i < kCases && wrong < 10; ++i) {
    const Workload w = random.Next();
    const double priced = price(w);
    const double bounded = bound(w, LayerTermsOf(w), LoadOf(w));
    EXPECT_LE(bounded, priced) << bounded / priced << " of the price: " << Describe(w);
    wrong += bounded > priced;
    loose += bounded < 0.7 * priced;
  }
  EXPECT_LT(loose, kCases / 8);
}

// Against the schedules themselves.
TEST(BoundsTest, NoScheduleHasFewerMicroBatchesInFlightOnTheFirstRank) {
  int seen = 0;
  for (int k = 0; k < schedule::kNumPipelineKinds; ++k) {
    const auto kind = static_cast<PipelineKind>(k);
    if (kind == PipelineKind::kInterleaved1F1B) continue;  // priced by Megatron-LM's own count
    const schedule::PipelineLimits limits = schedule::LimitsOf(kind);
    const schedule::PipelineOrder& order = schedule::OrderOf(kind);
    const bool has_form = order.in_flight != nullptr || order.least_in_flight != nullptr;
    for (int v = limits.min_virtual_stages; v <= std::min(4, limits.max_virtual_stages); ++v) {
      for (int p = 2; p <= 12; ++p) {
        for (int m = 1; m <= 40; m += 1 + m / 8) {
          const auto built = schedule::BuildPipeline(kind, {p, m, v});
          if (!built.ok()) continue;
          const double slots = static_cast<double>(PeaksInFlight(*built)[0]) / v;
          EXPECT_LE(LeastInFlight(kind, {p, m, v}), slots)
              << built->name << " p " << p << " v " << v << " m " << m;
          if (has_form) {
            EXPECT_GE(2 * LeastInFlight(kind, {p, m, v}), slots)
                << built->name << " p " << p << " v " << v << " m " << m;
          }
          ++seen;
        }
      }
    }
  }
  EXPECT_GT(seen, 2000);
}

TEST(BoundsTest, NoStepIsShorterThanItsBound) {
  ExpectBounds(
      1, [](const Workload& w) { return PriceTime(w).step_seconds; }, TimeBoundOf);
}

TEST(BoundsTest, NoJobNeedsLessMemoryThanItsBound) {
  ExpectBounds(
      2, [](const Workload& w) { return PriceMemory(w).upper_bytes; }, MemoryBoundOf);
}

void SetMachine(Workload& w, const char* framework, const char* device) {
  w.framework = FindFramework(framework);
  w.device = cluster::FindDevice(device)->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
}

double MemoryBoundOf(const Workload& w) { return MemoryBoundOf(w, LayerTermsOf(w), LoadOf(w)); }

// Where tuning takes away most of what the allocator holds beyond the tensors, the first rank, which reserves
// most, may need less than the last one.
TEST(BoundsTest, TheRankThatReservesMostMayHaveFewerTensorsThanAnother) {
  Workload w;
  w.model = model::LlamaOf({.layers = 10,
                            .hidden = 768,
                            .ffn = 1536,
                            .heads = 12,
                            .kv_heads = 12,
                            .head_dim = 64,
                            .vocab = 128256});
  SetEach(w.model, &model::Mlp::gated, true);
  SetExperts(w.model, model::Experts{.num_experts = 4, .top_k = 1, .ffn = 384});
  SetMachine(w, "megatron-core", "mi300x");
  w.seq_len = 32768;
  w.mesh = {.pp = 3, .dp_shard = 8, .cp = 2, .ep = 4};
  w.zero_stage = 2;
  w.pipeline = PipelineKind::k1F1B;
  w.global_batch = 16;
  w.loss_chunks = 8;
  w.tuning.reserved_share = 0.3;
  ASSERT_TRUE(Validate(w).ok());
  EXPECT_LE(MemoryBoundOf(w), PriceMemory(w).upper_bytes);
}

// Megatron-LM pads a vocabulary, and so the logits: a rank without the head has none of them.
TEST(BoundsTest, ARankWithoutTheHeadHasNoLogits) {
  Workload w;
  w.model = model::LlamaOf(
      {.layers = 31, .hidden = 1024, .ffn = 2048, .heads = 16, .kv_heads = 8, .head_dim = 64, .vocab = 1000});
  SetEach(w.model, &model::Mlp::gated, true);
  SetMachine(w, "megatron-core", "mi300x");
  w.seq_len = 32768;
  w.micro_batch = 4;
  w.recompute = RecomputeKind::kSelective;
  w.mesh = {.pp = 8, .dp_replicate = 8, .tp = 16};
  w.zero_stage = 2;
  w.pipeline = PipelineKind::k1F1B;
  w.global_batch = 32;
  ASSERT_TRUE(Validate(w).ok());
  EXPECT_LE(MemoryBoundOf(w), PriceMemory(w).upper_bytes);
}

// Adding gradients lengthens the weight backward, and so less of the copies from the host is left to wait
// for.
TEST(BoundsTest, CopiesFromTheHostHideBehindTheAdditionOfGradients) {
  Workload w;
  w.model = model::LlamaOf({.layers = 1,
                            .hidden = 4096,
                            .ffn = 12288,
                            .heads = 32,
                            .kv_heads = 32,
                            .head_dim = 128,
                            .vocab = 128256});
  SetEach(w.model, &model::Mlp::gated, true);
  SetMachine(w, "torchtitan", "v100");
  w.seq_len = 2048;
  w.recompute = RecomputeKind::kFull;
  w.context = ContextKind::kAllToAll;
  w.activations_on_host = true;
  w.mesh = {.pp = 3, .dp_shard = 32, .cp = 2};
  w.zero_stage = 3;
  w.pipeline = PipelineKind::kZbH1;
  w.global_batch = 35 * 32;
  ASSERT_TRUE(Validate(w).ok());
  EXPECT_LE(TimeBoundOf(w, LayerTermsOf(w), LoadOf(w)), PriceTime(w).step_seconds);
}

}  // namespace
}  // namespace trainctl::frameworks
