#include "frameworks/explore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cluster/catalogue.h"
#include "frameworks/explore_axes.h"
#include "frameworks/explore_bounder.h"
#include "frameworks/explore_rank.h"
#include "frameworks/framework_ways.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"
#include "tests/unit/num_cases.h"

namespace trainctl::frameworks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Workload Llama8B() {
  Workload w;
  w.model = model::LlamaOf({.layers = 32,
                            .hidden = 4096,
                            .ffn = 14336,
                            .heads = 32,
                            .kv_heads = 8,
                            .head_dim = 128,
                            .vocab = 128256});
  w.seq_len = 8192;
  w.global_batch = 128;
  w.device = cluster::FindDevice("h100-sxm-80gb")->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
  w.framework = FindFramework("megatron-core");
  return w;
}

SearchSpace SpaceOf(const Workload& base, int64_t num_gpus) {
  SearchSpace space;
  space.base = base;
  space.num_gpus = num_gpus;
  return space;
}

std::string Describe(const Choice& choice) {
  const Workload& w = choice.workload;
  return absl::StrCat(
      "tp ", w.mesh.tp, " pp ", w.mesh.pp, " v ", w.virtual_stages, " ",
      schedule::PipelineKindName(w.Pipeline()), " cp ", w.mesh.cp, " context ", static_cast<int>(w.context),
      " ep ", w.mesh.ep, " etp ", w.mesh.etp, " dp ", w.mesh.data_degree(), " zero ", w.zero_stage, " group ",
      w.mesh.dp_shard, " mb ", w.micro_batch, " sp ", w.SequenceParallel(), " recompute ",
      static_cast<int>(w.recompute), "/", w.recomputed_layers.value_or(-1), " host ", w.activations_on_host,
      w.optimizer_on_host, " precision ", static_cast<int>(w.precision), " split ", w.stage_layers.size(),
      ": ", choice.time.step_seconds, " s, ", choice.memory.upper_bytes, " bytes");
}

class RandomSpaces {
 public:
  explicit RandomSpaces(uint64_t seed) : random_(seed) {}

  SearchSpace Space() {
    Workload base;
    const int64_t heads = Pick<int64_t>({4, 6, 8, 12, 16});
    base.model = model::LlamaOf({.layers = Between(1, 9),
                                 .hidden = heads * 64,
                                 .ffn = heads * Pick<int64_t>({128, 256, 172}),
                                 .heads = heads,
                                 .kv_heads = heads / Pick<int64_t>({1, 2}),
                                 .head_dim = 64,
                                 .vocab = Pick<int64_t>({1000, 32000, 128256})});
    SetEach(base.model, &model::Mlp::gated, Chance(0.7));
    base.model.norm.kind = Chance(0.3) ? model::NormKind::kLayer : model::NormKind::kRms;
    base.model.tie_embeddings = Chance(0.3);
    base.model.dropout = Chance(0.1);
    if (Chance(0.3)) {
      SetExperts(base.model,
                 model::Experts{.num_experts = Pick<int64_t>({4, 6, 8}),
                                .top_k = Between(1, 3),
                                .ffn = heads * 32,
                                .shared_ffn = Chance(0.3) ? heads * 32 : 0},
                 Chance(0.3) ? 1 : 0);
    }
    base.seq_len = Pick<int64_t>({512, 2048, 8192, 16384});
    base.global_batch = Pick<int64_t>({1, 4, 6, 8, 16, 24, 32});
    base.precision = Pick<Precision>({Precision::kBf16, Precision::kFp16, Precision::kFp32, Precision::kFp8});
    base.device = cluster::FindDevice(Pick<const char*>({"h100", "a100", "v100", "mi300x", "b200"}))->device;
    base.node = &cluster::DefaultNodeFor(*base.device);
    const auto frameworks = Frameworks();
    base.framework =
        &frameworks[static_cast<size_t>(Between(0, static_cast<int64_t>(frameworks.size()) - 1))];

    SearchSpace space;
    space.base = base;
    space.num_gpus = Pick<int64_t>({1, 2, 3, 4, 6, 8, 16, 32});
    // Around what a layout of such a model needs, so that some fit and some do not.
    space.memory_limit_bytes =
        Chance(0.2) ? 0 : std::exp(std::uniform_real_distribution(20.8, 24.5)(random_));
    Maybe(0.5, space.tp, {1, 1, 2, 4});
    Maybe(0.5, space.pp, {1, 1, 2, 3, 4});
    Maybe(0.2, space.virtual_stages, {1, 2, 3});
    Maybe(0.7, space.cp, {1, 1, 2});
    Maybe(0.6, space.micro_batch, {1, 1, 2, 4});
    Maybe(0.35, space.shard_group, {1, 1, 2, 4});
    Maybe(0.5, space.zero_stage, {0, 1, 2, 3});
    Maybe(0.6, space.recompute, {RecomputeKind::kNone, RecomputeKind::kSelective, RecomputeKind::kFull});
    std::vector<schedule::PipelineKind> kinds;
    for (int k = 0; k < schedule::kNumPipelineKinds; ++k)
      kinds.push_back(static_cast<schedule::PipelineKind>(k));
    Maybe(1, space.pipeline, kinds);
    if (Chance(0.7)) space.stage_split = {Chance(0.5) ? StageSplit::kEven : StageSplit::kEmbeddingAware};
    Maybe(0.2, space.precision, {Precision::kBf16, Precision::kFp8});
    return space;
  }

  Goal AnyGoal(const SearchSpace& space) {
    Goal goal;
    goal.objective = Pick<Objective>({Objective::kStepTime, Objective::kStepTime, Objective::kCost,
                                      Objective::kHeadroom, Objective::kFewestGpus});
    if (Chance(0.2)) {
      // Steps of 2 ms to 2 s.
      goal.tokens = space.base.global_batch * space.base.seq_len * 1000;
      goal.deadline_seconds = std::pow(10.0, std::uniform_real_distribution(0.3, 3.3)(random_));
    }
    return goal;
  }

  template <typename T>
  void Shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), random_);
  }
  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  int64_t Between(int64_t low, int64_t high) { return std::uniform_int_distribution(low, high)(random_); }

 private:
  template <typename T>
  T Pick(std::vector<T> values) {
    return values[static_cast<size_t>(Between(0, static_cast<int64_t>(values.size()) - 1))];
  }
  // One or two of the values as a constraint.
  template <typename T>
  void Maybe(double probability, std::vector<T>& axis, std::vector<T> values) {
    if (!Chance(probability)) return;
    axis.push_back(Pick(values));
    if (Chance(0.5)) axis.push_back(Pick(values));
  }

  std::mt19937_64 random_;
};

void ExpectSame(const std::vector<Choice>& quick, const std::vector<Choice>& all, absl::string_view what) {
  ASSERT_EQ(quick.size(), all.size()) << what;
  for (size_t k = 0; k < quick.size(); ++k) {
    ASSERT_EQ(Describe(quick[k]), Describe(all[k])) << what << ", place " << k;
  }
}

TEST(ExploreTest, TheAnswerIsThatOfPricingEveryCandidate) {
  RandomSpaces random(1);
  int answered = 0, misfits = 0, impossible = 0;
  int64_t candidates = 0, simulated = 0;
  for (int i = 0; answered + misfits < NumCases(1000); ++i) {
    ASSERT_LT(i, 10'000);
    const SearchSpace space = random.Space();
    const Goal goal = random.AnyGoal(space);
    const ExploreOptions options{.keep = random.Chance(0.5) ? 1 : 5, .pareto_step = i % 4 == 0 ? 0.05 : 0};
    const auto quick = Explore(space, goal, options);
    const auto all = ExploreAll(space, goal, options);
    ASSERT_EQ(quick.ok(), all.ok()) << i << ": " << quick.status() << " " << all.status();
    if (!quick.ok()) {
      ++impossible;
      continue;
    }
    ExpectSame(quick->best, all->best, absl::StrCat("best of space ", i));
    ExpectSame(quick->pareto, all->pareto, absl::StrCat("front of space ", i));
    ASSERT_EQ(quick->nearest.has_value(), all->nearest.has_value()) << i;
    if (quick->nearest.has_value()) {
      ASSERT_EQ(Describe(*quick->nearest), Describe(*all->nearest)) << i;
    }
    quick->best.empty() ? ++misfits : ++answered;
    candidates += all->counts.simulated + all->counts.misfits;
    simulated += quick->counts.simulated;
  }
  RecordProperty("impossible", impossible);
  RecordProperty("candidates", absl::StrCat(candidates));
  RecordProperty("simulated", absl::StrCat(simulated));
  EXPECT_GT(answered, NumCases(400));
  EXPECT_GT(misfits, NumCases(50));
  EXPECT_GT(candidates, NumCases(100'000));
  // Of what everybody else prices, next to nothing: otherwise the bounds say nothing.
  EXPECT_LT(simulated, candidates / 20);
}

// What the answer itself says, stated, is no way to a better answer; nor is any other value that the axis
// ranges over.
TEST(ExploreTest, FixingAValueGivesNoFasterPlan) {
  RandomSpaces random(4);
  int64_t fixed = 0;
  for (int i = 0; i < NumCases(300); ++i) {
    SearchSpace space = random.Space();
    space.zero_stage.clear();
    space.micro_batch.clear();
    space.recompute.clear();
    space.shard_group.clear();
    const auto free = Explore(space, Goal(), {.keep = 1});
    if (!free.ok() || free->best.empty()) continue;
    const Workload& w = free->best[0].workload;
    const double most = free->best[0].time.step_seconds / (1 + ExploreOptions().hair) * (1 - 1e-12);
    const auto expect_no_faster = [&](const char* what, const auto& fix) {
      SearchSpace stated = space;
      fix(stated);
      const auto found = Explore(stated, Goal(), {.keep = 1});
      if (!found.ok() || found->best.empty()) return;
      // Only where nothing fits without is more looked at.
      const Workload& other = found->best[0].workload;
      if (other.optimizer_on_host != w.optimizer_on_host ||
          other.activations_on_host != w.activations_on_host || other.mesh.tp > other.node->gpus)
        return;
      ++fixed;
      EXPECT_GE(found->best[0].time.step_seconds, most)
          << "space " << i << ", " << what << " fixed: " << Describe(found->best[0])
          << "\n  free: " << Describe(free->best[0]);
    };
    expect_no_faster("tp", [&](SearchSpace& s) { s.tp = {w.mesh.tp}; });
    expect_no_faster("pp", [&](SearchSpace& s) { s.pp = {w.mesh.pp}; });
    expect_no_faster("cp", [&](SearchSpace& s) { s.cp = {w.mesh.cp}; });
    expect_no_faster("micro_batch", [&](SearchSpace& s) { s.micro_batch = {w.micro_batch}; });
    expect_no_faster("recompute", [&](SearchSpace& s) { s.recompute = {w.recompute}; });
    // Sharding over one rank is looked at where it is asked for alone.
    if (w.mesh.dp_shard > 1)
      expect_no_faster("shard_group", [&](SearchSpace& s) { s.shard_group = {w.mesh.dp_shard}; });
    for (const int stage : {0, 1, 2, 3}) {
      expect_no_faster("zero_stage", [&](SearchSpace& s) { s.zero_stage = {stage}; });
    }
    for (const int64_t size : {1, 2, 4}) {
      expect_no_faster("micro_batch", [&](SearchSpace& s) { s.micro_batch = {size}; });
    }
    for (const auto recompute : {RecomputeKind::kNone, RecomputeKind::kFull}) {
      expect_no_faster("recompute", [&](SearchSpace& s) { s.recompute = {recompute}; });
    }
  }
  EXPECT_GT(fixed, NumCases(500));
}

// Holds each candidate's bounds against its prices.
class BoundsAgainstPrices : public BoundSink {
 public:
  explicit BoundsAgainstPrices(const Workload& base) : base_(base) {}
  void Consider(const LayerAxes& layer, const PipeAxes& pipe, const StateAxes& state, double seconds,
                double bytes) override {
    Choice choice;
    choice.workload = WorkloadOf(base_, {layer, pipe, state});
    if (wrong > 5 || !Validate(choice.workload).ok()) return;
    choice.memory = PriceMemory(choice.workload);
    choice.time = PriceTime(choice.workload);
    EXPECT_LE(bytes, choice.memory.upper_bytes) << Describe(choice);
    EXPECT_LE(seconds, choice.time.step_seconds) << Describe(choice);
    wrong += bytes > choice.memory.upper_bytes || seconds > choice.time.step_seconds;
    ++seen;
  }
  int64_t seen = 0;
  int wrong = 0;

 private:
  const Workload& base_;
};

TEST(ExploreTest, NoCandidateIsPricedBelowItsBounds) {
  RandomSpaces random(2);
  int64_t seen = 0;
  for (int i = 0; i < 400; ++i) {
    const SearchSpace space = random.Space();
    const auto axes = ResolveAxes(space, Goal(), /*wide=*/i % 4 == 0);
    ASSERT_TRUE(axes.ok());
    SearchCounts counts;
    BoundsAgainstPrices sink(space.base);
    LayerTermsTable terms;
    Bounder bounder(space.base, sink, counts, terms);
    LayoutWalk(*axes).Run(bounder);
    ASSERT_EQ(sink.wrong, 0);
    seen += sink.seen;
  }
  EXPECT_GT(seen, 50'000);
}

TEST(ExploreTest, TheOrderOfTheValuesChangesNothing) {
  RandomSpaces random(3);
  int answered = 0;
  for (int i = 0; i < 100; ++i) {
    SearchSpace space = random.Space();
    // All values of some axes, which are walked in the order in which they are given.
    space.tp = {1, 2, 4, 8};
    space.pp = {1, 2, 3, 4};
    space.micro_batch = {1, 2, 3, 4};
    space.zero_stage = {0, 1, 2, 3};
    space.shard_group.clear();
    const Goal goal = random.AnyGoal(space);
    const ExploreOptions options{.keep = 5, .pareto_step = 0.1};
    const auto first = Explore(space, goal, options);
    random.Shuffle(space.tp);
    random.Shuffle(space.pp);
    random.Shuffle(space.micro_batch);
    random.Shuffle(space.zero_stage);
    random.Shuffle(space.recompute);
    random.Shuffle(space.pipeline);
    random.Shuffle(space.cp);
    const auto second = Explore(space, goal, options);
    ASSERT_EQ(first.ok(), second.ok());
    if (!first.ok()) continue;
    ExpectSame(first->best, second->best, "best");
    ExpectSame(first->pareto, second->pareto, "front");
    ASSERT_EQ(first->nearest.has_value(), second->nearest.has_value());
    answered += first->best.empty() ? 0 : 1;
  }
  EXPECT_GT(answered, 30);
}

TEST(ExploreTest, EveryChoiceIsAValidWorkloadOnAllGpus) {
  const auto found = Explore(SpaceOf(Llama8B(), 64), Goal(), {.keep = 50});
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->best.size(), 50u);
  for (const Choice& choice : found->best) {
    EXPECT_TRUE(Validate(choice.workload).ok());
    EXPECT_EQ(choice.num_gpus(), 64);
    EXPECT_TRUE(choice.fits);
    EXPECT_LE(choice.memory.upper_bytes, choice.workload.device->memory_bytes.value);
  }
  EXPECT_FALSE(found->nearest.has_value());
}

TEST(ExploreTest, TheFrontIsFasterWhereItNeedsMore) {
  const auto found = Explore(SpaceOf(Llama8B(), 64), Goal(), {.pareto_step = 0.1});
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_GT(found->pareto.size(), 3u);
  EXPECT_EQ(Describe(found->pareto[0]), Describe(found->best[0]));
  for (size_t i = 1; i < found->pareto.size(); ++i) {
    EXPECT_LE(found->pareto[i].memory.upper_bytes, 0.9 * found->pareto[i - 1].memory.upper_bytes);
    EXPECT_GE(found->pareto[i].time.step_seconds, found->pareto[i - 1].time.step_seconds * (1 - 1e-3));
  }
}

// A million candidates are bounded, and few simulated.
TEST(ExploreTest, TheLargestModelOnTheLargestCluster) {
  Workload base = Llama8B();
  SetNumLayers(base.model, 126);
  base.model.hidden = 16384;
  SetEach(base.model, &model::Mlp::ffn, 53248);
  SetEach(base.model, &model::Attention::heads, 128);
  base.global_batch = 2048;
  const auto found = Explore(SpaceOf(base, 16384), Goal());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_GE(found->counts.bounded, 1'000'000);
  EXPECT_EQ(found->counts.enumerated, found->counts.bounded + found->counts.refused);
  EXPECT_LE(found->counts.simulated, 3000);
  EXPECT_EQ(found->counts.bounded, found->counts.pruned_by_memory + found->counts.pruned_by_time +
                                       found->counts.misfits + found->counts.simulated);
  ASSERT_FALSE(found->best.empty());
}

TEST(ExploreTest, AFixedLayoutIsTheAnswer) {
  SearchSpace space = SpaceOf(Llama8B(), 64);
  space.tp = {4};
  space.pp = {2};
  space.cp = {1};
  space.virtual_stages = {2};
  space.micro_batch = {2};
  space.zero_stage = {1};
  space.shard_group = {8};
  space.recompute = {RecomputeKind::kFull};
  space.recomputed_layers = {-1};
  space.pipeline = {schedule::PipelineKind::kInterleaved1F1B};
  space.sequence_parallel = {true};
  space.stage_split = {StageSplit::kEven};
  const auto found = Explore(space, Goal());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->counts.bounded, 1);
  ASSERT_EQ(found->best.size(), 1u);
  const Workload& w = found->best[0].workload;
  EXPECT_EQ(w.mesh.tp, 4);
  EXPECT_EQ(w.mesh.pp, 2);
  EXPECT_EQ(w.mesh.data_degree(), 8);
  EXPECT_EQ(w.mesh.dp_shard, 8);
  EXPECT_EQ(w.virtual_stages, 2);
  EXPECT_EQ(w.num_micro_batches(), 8);
  EXPECT_EQ(found->best[0].time.step_seconds, PriceTime(w).step_seconds);
}

// torchtitan divides the key-value heads and the vocabulary evenly; Megatron Core copies the one and pads the
// other.
TEST(ExploreTest, TensorParallelismDividesTheKeyValueHeadsAsTheFrameworkDoes) {
  SearchSpace space = SpaceOf(Llama8B(), 8);
  space.base.framework = FindFramework("torchtitan");
  space.base.model = model::LlamaOf({.layers = 28,
                                     .hidden = 1536,
                                     .ffn = 8960,
                                     .heads = 12,
                                     .kv_heads = 2,
                                     .head_dim = 128,
                                     .vocab = 151936});
  const model::Architecture& model = space.base.model;
  EXPECT_EQ(TensorObstacle("torchtitan", model, 4),
            "tp 4 does not divide the 2 key-value heads, which torchtitan requires");
  EXPECT_EQ(TensorObstacle("torchtitan", model, 2), "");
  EXPECT_EQ(TensorObstacle("megatron-core", model, 4), "");
  const auto found = Explore(space, Goal());
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_FALSE(found->best.empty());
  for (const Choice& choice : found->best) EXPECT_LE(choice.workload.mesh.tp, 2) << Describe(choice);
  space.tp = {4};
  EXPECT_EQ(ExitCodeFor(Explore(space, Goal()).status()), ExitCode::kUsage);
  space.base.framework = FindFramework("megatron-core");
  EXPECT_TRUE(Explore(space, Goal()).ok());

  model::Architecture odd = Llama8B().model;
  odd.vocab = 151665;
  EXPECT_THAT(TensorObstacle("torchtitan", odd, 8), HasSubstr("the 151665 vocabulary entries"));
  EXPECT_EQ(TensorObstacle("megatron-core", odd, 8), "");
}

TEST(ExploreTest, AGivenCutIsTheOnlyOne) {
  SearchSpace space = SpaceOf(Llama8B(), 64);
  space.base.stage_layers = {7, 9, 9, 7};
  const auto found = Explore(space, Goal());
  ASSERT_TRUE(found.ok()) << found.status();
  for (const Choice& choice : found->best) {
    EXPECT_EQ(choice.workload.mesh.pp * choice.workload.virtual_stages, 4);
    EXPECT_EQ(choice.workload.stage_layers, space.base.stage_layers);
  }
  space.base.stage_layers = {7, 9, 9, 8};
  EXPECT_THAT(std::string(Explore(space, Goal()).status().message()), HasSubstr("add up to 33"));
  space.base.stage_layers = {7, 9, 9, 7};
  space.pp = {8};
  EXPECT_THAT(std::string(Explore(space, Goal()).status().message()), HasSubstr("stage_layers of 4 stages"));
}

TEST(ExploreTest, WhatFitsNowhereHasANearest) {
  SearchSpace space = SpaceOf(Llama8B(), 1);
  space.memory_limit_bytes = 2e9;
  const auto found = Explore(space, Goal());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->best.empty());
  ASSERT_TRUE(found->nearest.has_value());
  EXPECT_FALSE(found->nearest->fits);
  EXPECT_GT(found->nearest->memory.upper_bytes, 2e9);
  // With what it needs, it is found.
  space.memory_limit_bytes = found->nearest->memory.upper_bytes;
  const auto again = Explore(space, Goal());
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->best.empty());
}

TEST(ExploreTest, TheFewestGpusForADeadline) {
  SearchSpace space = SpaceOf(Llama8B(), 128);
  Goal goal{.objective = Objective::kFewestGpus, .deadline_seconds = 30 * 86400.0, .tokens = 200'000'000'000};
  const auto found = Explore(space, goal, {.keep = 1, .pareto_step = 0.1});
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_FALSE(found->best.empty());
  const double steps = 2e11 / (128.0 * 8192);
  EXPECT_LE(found->best[0].time.step_seconds * steps, goal.deadline_seconds);
  // Half of them would not do.
  SearchSpace half = space;
  half.gpu_counts = {found->best[0].num_gpus() / 2};
  const auto too_late = Explore(half, goal);
  ASSERT_TRUE(too_late.ok());
  EXPECT_TRUE(too_late->best.empty());
  ASSERT_TRUE(too_late->nearest.has_value());
  EXPECT_TRUE(too_late->nearest->fits);
  EXPECT_GT(too_late->nearest->time.step_seconds * steps, goal.deadline_seconds);
  for (size_t i = 1; i < found->pareto.size(); ++i) {
    EXPECT_LT(found->pareto[i].num_gpus(), found->pareto[i - 1].num_gpus());
  }
}

TEST(ExploreTest, CostCountsGpusAndTime) {
  SearchSpace space = SpaceOf(Llama8B(), 128);
  space.gpu_counts = {16, 32, 64, 128};
  const auto cheap = Explore(space, {.objective = Objective::kCost, .price_per_gpu_hour = 2}, {.keep = 1});
  const auto fast = Explore(space, {.objective = Objective::kStepTime}, {.keep = 1});
  ASSERT_TRUE(cheap.ok() && fast.ok());
  const auto cost = [](const Choice& c) { return static_cast<double>(c.num_gpus()) * c.time.step_seconds; };
  EXPECT_LE(cost(cheap->best[0]), cost(fast->best[0]) * 1.001);
  EXPECT_LE(fast->best[0].time.step_seconds, cheap->best[0].time.step_seconds * 1.001);
  EXPECT_EQ(fast->best[0].num_gpus(), 128);
}

Priced PricedAt(double seconds, int64_t simplicity) {
  Priced priced{};
  priced.score = {0, seconds};
  priced.key = {simplicity};
  return priced;
}

TEST(ExploreTest, WithinAHairTheSimplerGoesFirst) {
  // 1.0005 is within a hair of 1, 1.0015 is not, but of what is left then.
  std::vector<Priced> priced = {PricedAt(1.0, 5), PricedAt(1.0005, 2), PricedAt(1.0015, 1), PricedAt(3, 0)};
  const auto times = [&] {
    std::vector<double> best;
    for (const size_t i : BestOf(priced, {.keep = 3, .hair = 1e-3})) best.push_back(priced[i].score.minor);
    return best;
  };
  const std::vector<double> expected = {1.0005, 1.0, 1.0015};
  EXPECT_EQ(times(), expected);
  std::reverse(priced.begin(), priced.end());
  EXPECT_EQ(times(), expected);
}

TEST(ExploreTest, WhatIsImpossibleIsAUsageErrorThatNamesTheConstraint) {
  const auto message = [](const SearchSpace& space, const Goal& goal = {},
                          const ExploreOptions& options = {}) {
    const auto result = Explore(space, goal, options);
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(ExitCodeFor(result.status()), ExitCode::kUsage);
    return std::string(result.status().message());
  };
  const SearchSpace good = SpaceOf(Llama8B(), 64);
  const auto with = [&](const auto& change) {
    SearchSpace space = good;
    change(space);
    return space;
  };
  EXPECT_THAT(message(with([](SearchSpace& s) { s.tp = {3}; })), HasSubstr("tp = 3"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.dp = {5}; })), HasSubstr("dp = 5"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.micro_batch = {1000}; })), HasSubstr("micro_batch = 1000"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.ep = {8}; })), HasSubstr("ep = 8"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.pp = {16}, s.tp = {8}; })),
              AllOf(HasSubstr("pp = 16"), HasSubstr("tp = 8")));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.tp = {0}; })), HasSubstr("tp 0"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.tp = {-2}; })), HasSubstr("tp -2"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.zero_stage = {4}; })), HasSubstr("zero_stage 4"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.num_gpus = 0; })), HasSubstr("num_gpus is 0"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.num_gpus = 2'000'000'000; })), HasSubstr("num_gpus"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.num_gpus = 1'000'000'000; })), HasSubstr("num_gpus"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.gpu_counts = {1'000'000'000}; })), HasSubstr("gpu_counts"));
  // Nothing divides the batch among so many.
  EXPECT_THAT(message(with([](SearchSpace& s) { s.num_gpus = 4'194'301; })), HasSubstr("128 sequences"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.memory_limit_bytes = -1; })),
              HasSubstr("memory_limit_bytes"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.base.device = nullptr; })), HasSubstr("device"));
  EXPECT_THAT(message(with([](SearchSpace& s) { SetNumLayers(s.base.model, 0); })), HasSubstr("layers"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.base.global_batch = 0; })), HasSubstr("global_batch"));
  EXPECT_THAT(message(with([](SearchSpace& s) { s.tp.assign(5000, 1); })), HasSubstr("5000"));
  EXPECT_THAT(message(good, {.price_per_gpu_hour = -3}), HasSubstr("price_per_gpu_hour"));
  EXPECT_THAT(message(good, {.deadline_seconds = 5}), HasSubstr("deadline"));
  EXPECT_THAT(message(good, {}, {.keep = 0}), HasSubstr("keep"));
  EXPECT_THAT(message(good, {}, {.pareto_step = 1}), HasSubstr("pareto_step"));
  EXPECT_THAT(message(good, {}, {.hair = std::nan("")}), HasSubstr("hair"));
}

}  // namespace
}  // namespace trainctl::frameworks
