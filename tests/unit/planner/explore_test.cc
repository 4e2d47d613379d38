#include "planner/explore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cluster/catalogue.h"
#include "planner/explore_axes.h"

namespace trainctl::planner {
namespace {

using ::testing::HasSubstr;

pricing::Workload Llama8B() {
  pricing::Workload w;
  w.model = {.layers = 32,
             .hidden = 4096,
             .ffn = 14336,
             .heads = 32,
             .kv_heads = 8,
             .head_dim = 128,
             .vocab = 128256};
  w.seq_len = 8192;
  w.global_batch = 128;
  w.device = cluster::FindDevice("h100-sxm-80gb")->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
  w.framework = pricing::FindFramework("megatron-core");
  return w;
}

SearchSpace SpaceOf(const pricing::Workload& base, int64_t num_gpus) {
  SearchSpace space;
  space.base = base;
  space.num_gpus = num_gpus;
  return space;
}

std::string Describe(const Choice& choice) {
  const pricing::Workload& w = choice.workload;
  const pricing::Degrees& d = w.degrees;
  return absl::StrCat(
      "tp ", d.tp, " pp ", d.pp, " v ", d.virtual_stages, " ", schedule::PipelineKindName(w.Pipeline()),
      " cp ", d.cp, " context ", static_cast<int>(w.context), " ep ", d.ep, " etp ", d.etp, " dp ", d.dp,
      " zero ", d.zero_stage, " group ", d.shard_group, " mb ", w.micro_batch, " sp ", w.SequenceParallel(),
      " recompute ", static_cast<int>(w.recompute), "/", w.recomputed_layers.value_or(-1), " host ",
      w.activations_on_host, w.optimizer_on_host, " precision ", static_cast<int>(w.precision), " split ",
      w.stage_layers.size(), ": ", choice.time.step_seconds, " s, ", choice.memory.upper_bytes, " bytes");
}

class RandomSpaces {
 public:
  explicit RandomSpaces(uint64_t seed) : random_(seed) {}

  SearchSpace Space() {
    pricing::Workload base;
    const int64_t heads = Pick<int64_t>({4, 6, 8, 12, 16});
    base.model = {.layers = Between(1, 9),
                  .hidden = heads * 64,
                  .ffn = heads * Pick<int64_t>({128, 256, 172}),
                  .heads = heads,
                  .kv_heads = heads / Pick<int64_t>({1, 2}),
                  .head_dim = 64,
                  .vocab = Pick<int64_t>({1000, 32000, 128256}),
                  .gated_mlp = Chance(0.7),
                  .layer_norm = Chance(0.3),
                  .tied_embeddings = Chance(0.3),
                  .dropout = Chance(0.1)};
    if (Chance(0.3)) {
      base.model.experts = pricing::Experts{.count = Pick<int64_t>({4, 6, 8}),
                                            .top_k = Between(1, 3),
                                            .ffn = heads * 32,
                                            .shared_ffn = Chance(0.3) ? heads * 32 : 0,
                                            .dense_layers = Chance(0.3) ? 1 : 0};
    }
    base.seq_len = Pick<int64_t>({512, 2048, 8192, 16384});
    base.global_batch = Pick<int64_t>({1, 4, 6, 8, 16, 24, 32});
    base.precision = Pick<pricing::Precision>({pricing::Precision::kBf16, pricing::Precision::kFp16,
                                               pricing::Precision::kFp32, pricing::Precision::kFp8});
    base.device = cluster::FindDevice(Pick<const char*>({"h100", "a100", "v100", "mi300x", "b200"}))->device;
    base.node = &cluster::DefaultNodeFor(*base.device);
    const auto frameworks = pricing::Frameworks();
    base.framework =
        &frameworks[static_cast<size_t>(Between(0, static_cast<int64_t>(frameworks.size()) - 1))];

    SearchSpace space;
    space.base = base;
    space.num_gpus = Pick<int64_t>({1, 2, 3, 4, 6, 8, 16, 32});
    // Around what a layout of such a model needs, so that some fit and some do not.
    space.memory_limit_bytes =
        Chance(0.2) ? 0 : std::exp(std::uniform_real_distribution(20.8, 24.5)(random_));
    Maybe(0.5, space.tp, {1, 1, 2, 4});
    Maybe(0.4, space.pp, {1, 1, 2, 3, 4});
    Maybe(0.2, space.virtual_stages, {1, 2, 3});
    Maybe(0.5, space.cp, {1, 1, 2});
    Maybe(0.4, space.micro_batch, {1, 1, 2, 4});
    Maybe(0.2, space.shard_group, {1, 2, 4, 8});
    Maybe(0.3, space.zero_stage, {0, 1, 2, 3});
    Maybe(0.3, space.recompute,
          {pricing::RecomputeKind::kNone, pricing::RecomputeKind::kSelective, pricing::RecomputeKind::kFull});
    std::vector<schedule::PipelineKind> kinds;
    for (int k = 0; k < schedule::kNumPipelineKinds; ++k)
      kinds.push_back(static_cast<schedule::PipelineKind>(k));
    Maybe(0.8, space.pipeline, kinds);
    Maybe(0.2, space.precision, {pricing::Precision::kBf16, pricing::Precision::kFp8});
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

TEST(ExploreTest, TheAnswerIsThatOfPricingEveryCandidate) {
  RandomSpaces random(1);
  int answered = 0, misfits = 0, impossible = 0;
  int64_t candidates = 0, simulated = 0;
  for (int i = 0; answered + misfits < 250; ++i) {
    ASSERT_LT(i, 10'000);
    const SearchSpace space = random.Space();
    const Goal goal = random.AnyGoal(space);
    const ExploreOptions options{.keep = random.Chance(0.5) ? 1 : 5};
    const auto quick = Explore(space, goal, options);
    const auto all = ExploreAll(space, goal, options);
    ASSERT_EQ(quick.ok(), all.ok()) << i << ": " << quick.status() << " " << all.status();
    if (!quick.ok()) {
      ++impossible;
      continue;
    }
    ASSERT_EQ(quick->best.size(), all->best.size()) << i;
    for (size_t k = 0; k < quick->best.size(); ++k) {
      ASSERT_EQ(Describe(quick->best[k]), Describe(all->best[k])) << "space " << i << ", place " << k;
    }
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
  EXPECT_GT(answered, 100);
  EXPECT_GT(misfits, 10);
  EXPECT_GT(candidates, 20'000);
}

TEST(ExploreTest, WhatIsImpossibleIsAUsageErrorThatNamesTheConstraint) {
  SearchSpace space = SpaceOf(Llama8B(), 64);
  space.tp = {3};
  auto result = Explore(space, Goal());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(ExitCodeFor(result.status()), ExitCode::kUsage);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("tp = 3"));
}

}  // namespace
}  // namespace trainctl::planner
