// Which layout MakePlan chooses, and the reasons and advice that it gives.
#include "planner/make_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/counter_rng.h"
#include "model/presets.h"
#include "planner/choose.h"
#include "tests/unit/num_cases.h"
#include "tests/unit/planner/make_plan_fixture.h"

namespace trainctl::planner {
namespace {

using plan::Chosen;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Plan, RandomRecipesGetSoundPlansOrAReason) {
  int num_planned = 0, num_infeasible = 0;
  for (uint64_t seed = 0; seed < NumCases<uint64_t>(150); ++seed) {
    uint64_t draws = 0;
    const auto below = [&](uint64_t bound) { return RandomBelow(seed, 1, draws++, bound); };
    recipe::Recipe recipe = SmallRecipe(1 + static_cast<int64_t>(below(8)));
    SetNumLayers(recipe.model.spec, 1 + static_cast<int64_t>(below(4)));
    recipe.model.spec.tie_embeddings = below(2) == 0;
    const int64_t workers = recipe.cluster.devices_per_node;
    recipe.train.batch_sequences = workers * (1 + static_cast<int64_t>(below(12)));
    recipe.train.precision = below(2) == 0 ? "fp32" : "bf16";
    recipe.parallel.prefetch = below(2) == 0;
    recipe.checkpoint.async = below(2) == 0;
    const bool on_device = below(3) == 0;
    if (on_device) recipe.cluster.device = "h100-sxm-80gb";
    // A device's matrix products need a workspace of 32 MiB, whatever the layout is.
    recipe.cluster.memory_limit_bytes = kMiB * static_cast<int64_t>((on_device ? 34 : 4) + below(40));
    if (below(3) == 0) recipe.parallel.zero_stage = workers == 1 ? 0 : static_cast<int64_t>(below(4));
    if (below(4) == 0) recipe.parallel.recompute = below(2) == 0 ? "none" : "full";
    if (below(4) == 0) recipe.train.micro_batch = 1;
    const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
    if (plan.ok()) {
      ++num_planned;
      ExpectSound(*plan, recipe);
    } else {
      ++num_infeasible;
      EXPECT_EQ(ExitCodeFor(plan.status()), ExitCode::kInfeasible) << plan.status();
      EXPECT_THAT(MessageOf(plan), HasSubstr("needs"));
    }
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(num_planned, NumCases(50));
  EXPECT_GT(num_infeasible, NumCases(20));
}

// A micro-batch that gains nothing may come before one that gains much.
TEST(Plan, NoStatedMicroBatchIsFasterThanTheChosenOne) {
  int compared = 0;
  for (uint64_t i = 0; compared < NumCases(400); ++i) {
    ASSERT_LT(i, 2000u);
    uint64_t draws = 0;
    const auto pick = [&](std::initializer_list<int64_t> values) {
      return values.begin()[RandomBelow(17, i, draws++, values.size())];
    };
    recipe::Recipe recipe;
    const int64_t workers = pick({1, 2, 4});
    recipe.model.spec = *model::Preset("toy-1m");
    recipe.model.spec.hidden = pick({32, 128, 512});
    SetEach(recipe.model.spec, &model::Attention::heads, 4);
    SetEach(recipe.model.spec, &model::Attention::kv_heads, 2);
    SetEach(recipe.model.spec, &model::Attention::head_dim, recipe.model.spec.hidden / 4);
    SetEach(recipe.model.spec, &model::Mlp::ffn, pick({128, 1024}));
    SetNumLayers(recipe.model.spec, pick({1, 2, 8}));
    recipe.model.spec.vocab = pick({257, 8000});
    recipe.parallel.pp = recipe.parallel.tp = 1;
    recipe.data.seq_len = pick({16, 64, 256, 1024});
    recipe.train.batch_sequences = workers * pick({4, 6, 8, 16, 32});
    recipe.train.precision = pick({0, 1}) == 0 ? "fp32" : "bf16";
    recipe.cluster.devices_per_node = workers;
    recipe.cluster.threads_per_worker = pick({1, 3, 5, 8, 12, 24});
    recipe.cluster.memory_limit_bytes = pick({50, 100, 200, 400, 2000}) * kMiB;
    cluster::Host host = SomeHost();
    host.allowed_cores = 96;
    const auto seconds_of = [&](const absl::StatusOr<Plan>& plan) {
      for (const Candidate& candidate : plan->candidates) {
        if (candidate.chosen) return candidate.step_seconds;
      }
      return 0.0;
    };
    const absl::StatusOr<Plan> free = MakePlan(recipe, host);
    if (!free.ok()) continue;
    const int64_t share = recipe.train.batch_sequences / workers;
    for (int64_t micro_batch = 1; micro_batch <= share; micro_batch *= 2) {
      if (share % micro_batch != 0) continue;
      recipe.train.micro_batch = micro_batch;
      const absl::StatusOr<Plan> stated = MakePlan(recipe, host);
      if (!stated.ok()) continue;  // does not fit
      ++compared;
      // Of layouts within 1 % of the fastest the simplest is taken.
      EXPECT_LE(seconds_of(free), kSameTime * seconds_of(stated) * (1 + 1e-9))
          << "job " << i << ": chosen " << free->layout.ToString() << ", better "
          << stated->layout.ToString();
    }
  }
}

TEST(Plan, WithMemoryToSpareNothingIsShardedAndNothingComputedTwice) {
  recipe::Recipe recipe = SmallRecipe(4);
  // The update, which ZeRO-1 divides among the workers, is less than 1 % of such a step.
  recipe.train.batch_sequences = 1024;
  const Plan plan = MustPlan(recipe);
  EXPECT_EQ(plan.layout.zero_stage, 0);
  EXPECT_EQ(plan.layout.recompute, Recompute::kNone);
}

// Only layouts that cut the model give each worker something to do.
TEST(Plan, FewerSequencesThanWorkersCutTheModel) {
  recipe::Recipe recipe = SmallRecipe(16);
  recipe.train.batch_sequences = 12;
  const Plan plan = MustPlan(recipe);
  ExpectSound(plan, recipe);
  EXPECT_EQ(plan.layout.mesh.world_size(), 16);
  EXPECT_EQ(12 % plan.layout.mesh.data_degree(), 0);
  recipe.parallel.pp = recipe.parallel.tp = 1;
  EXPECT_EQ(ExitCodeFor(MakePlan(recipe, SomeHost()).status()), ExitCode::kUsage);
}

TEST(Plan, ATighterLimitLeadsToMoreShardingAndThenToRecompute) {
  recipe::Recipe recipe = SmallRecipe(4);
  recipe.train.batch_sequences = 4;
  recipe.parallel.pp = recipe.parallel.tp = 1;
  SetNumLayers(recipe.model.spec, 24);  // states dominate
  int stage = 0;
  int64_t limit = MustPlan(recipe).predicted.peak_bytes;
  std::set<Recompute> recomputed;
  while (true) {
    recipe.cluster.memory_limit_bytes = limit - 1;
    const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
    if (!plan.ok()) break;
    ExpectSound(*plan, recipe);
    stage = std::max(stage, plan->layout.zero_stage);
    recomputed.insert(plan->layout.recompute);
    limit = plan->predicted.peak_bytes;  // the next must be smaller
  }
  EXPECT_EQ(stage, 3);
  EXPECT_EQ(recomputed.size(), std::size(layout::kRecomputes));
}

// Two workers, nothing of data parallelism sharded: what does not fit on one is cut.
TEST(Plan, AModelThatNoDataParallelLayoutHoldsIsCut) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.parallel.zero_stage = 0;
  SetNumLayers(recipe.model.spec, 24);
  recipe.parallel.pp = recipe.parallel.tp = 1;
  recipe.train.micro_batch = 1;
  recipe.parallel.recompute = "full";
  recipe.cluster.memory_limit_bytes = MustPlan(recipe).predicted.peak_bytes * 3 / 4;
  EXPECT_EQ(ExitCodeFor(MakePlan(recipe, SomeHost()).status()), ExitCode::kInfeasible);
  // Either way halves the parameters; a recipe may rule one out.
  recipe.parallel.pp.reset();
  EXPECT_EQ(MustPlan(recipe).layout.mesh.pp, 2);
  ExpectSound(MustPlan(recipe), recipe);
  recipe.parallel.pp = 1;
  recipe.parallel.tp.reset();
  EXPECT_EQ(MustPlan(recipe).layout.mesh.tp, 2);
  ExpectSound(MustPlan(recipe), recipe);
}

// A slow link between four machines, each with four fast ones: what goes over it is least with a pipeline.
// The notes say what was chosen.
TEST(Plan, APipelineIsProposedWhereGradientsWouldTakeLong) {
  recipe::Recipe recipe = SmallRecipe(1);
  recipe.model.spec = *model::Preset("llama3.1-70b");
  recipe.data.seq_len = 8192;
  recipe.cluster.device = "h100-sxm-80gb";
  recipe.cluster.nodes = 256;
  recipe.cluster.devices_per_node = 8;
  recipe.train.batch_sequences = 2048;
  recipe.train.precision = "bf16";
  recipe.cluster.memory_limit_bytes.reset();
  const Plan plan = MustPlan(recipe);
  ExpectSound(plan, recipe);
  recipe.parallel.pp = recipe.parallel.tp = 1;
  const Plan uncut = MustPlan(recipe);
  EXPECT_LT(Chosen(plan).step_seconds * 1.1, Chosen(uncut).step_seconds);
}

// The first stage may be the embedding alone, the last one the head: a stated order takes that many stages.
TEST(Plan, AStatedPipelineMayHaveMoreStagesThanLayers) {
  recipe::Recipe recipe = SmallRecipe(2);
  SetNumLayers(recipe.model.spec, 2);
  recipe.parallel.pp = 2, recipe.parallel.tp = 1;
  recipe.parallel.schedule = "zbv";
  const Plan plan = MustPlan(recipe);
  ExpectSound(plan, recipe);
  EXPECT_EQ(plan.layout.pipeline.stage_layers, (std::vector<int64_t>{0, 1, 1, 0}));
}

// Four micro-batches through four ranks idle for nearly half of a step; through two, 256 of them hardly.
TEST(Plan, AnotherOrderThan1F1BIsTakenWhereItGains) {
  recipe::Recipe recipe = SmallRecipe(4);
  SetNumLayers(recipe.model.spec, 16);
  recipe.parallel.pp = 4, recipe.parallel.tp = 1;
  recipe.train.batch_sequences = 4;
  recipe.train.micro_batch = 1;
  const Plan plan = MustPlan(recipe);
  ExpectSound(plan, recipe);
  EXPECT_NE(plan.layout.pipeline.order, "1f1b");
  EXPECT_THAT(plan.notes, Contains("parallel.schedule = auto: " + plan.layout.pipeline.order));
  recipe.parallel.schedule = "1f1b";
  const Plan usual = MustPlan(recipe);
  EXPECT_EQ(usual.layout.pipeline.order, "1f1b");
  EXPECT_LT(Chosen(plan).step_seconds * kSameTime, Chosen(usual).step_seconds);
  recipe.parallel.schedule.reset();
  recipe.parallel.pp = 2, recipe.cluster.devices_per_node = 2;
  recipe.train.batch_sequences = 256;
  EXPECT_EQ(MustPlan(recipe).layout.pipeline.order, "1f1b");
  recipe.parallel.schedule = "zbv";
  EXPECT_EQ(MustPlan(recipe).layout.pipeline.virtual_stages, 2) << "the fewest that it takes";
}

TEST(Plan, EveryStrategyIsListedWithItsReason) {
  recipe::Recipe recipe = SmallRecipe(4);
  recipe.parallel.zero_stage = 2;
  const Plan plan = MustPlan(recipe);
  std::set<std::pair<int, int>> strategies;
  for (const Candidate& candidate : plan.candidates) {
    strategies.insert({candidate.layout.zero_stage, candidate.layout.mesh.dp_shard});
    if (candidate.layout.zero_stage != 2) {
      EXPECT_THAT(candidate.reason, HasSubstr("parallel.zero_stage = 2"));
    }
  }
  EXPECT_EQ(strategies.size(), 7u);  // DDP, and three stages over 2 or 4 workers
}

// Lion keeps one moment of fp32 where AdamW keeps two, and its update moves 20 bytes of an element, not 28.
TEST(Plan, AnOptimizerNeedsWhatItKeepsAndMoves) {
  recipe::Recipe recipe = SmallRecipe(1);
  recipe.train.micro_batch = 1;
  recipe.parallel.recompute = "none";
  const Plan adamw = MustPlan(recipe);
  recipe.optimizer.name = "lion";
  const Plan lion = MustPlan(recipe);
  EXPECT_NE(lion.step_hash, adamw.step_hash);
  const auto state = [](const Plan& plan) {
    return plan.predicted.at_peak[static_cast<size_t>(schedule::Category::kOptimizer)];
  };
  EXPECT_EQ(state(adamw), 2 * state(lion));
  EXPECT_EQ(adamw.predicted.peak_bytes - lion.predicted.peak_bytes, state(lion));
  // The update alone differs.
  const double adamw_seconds =
      static_cast<double>(state(lion)) / 4 * adamw.rates[simulate::Resource::kOptimizerElements];
  EXPECT_NEAR(Chosen(adamw).step_seconds - Chosen(lion).step_seconds, adamw_seconds * 8 / 28,
              1e-9 * Chosen(adamw).step_seconds);
}

TEST(Plan, WhatDoesNotFitSaysWhichCategoryAndWhatWouldFit) {
  recipe::Recipe recipe = SmallRecipe(4);
  recipe.parallel.pp = recipe.parallel.tp = 1;
  recipe.parallel.zero_stage = 0;
  recipe.parallel.recompute = "none";
  recipe.train.micro_batch = 1;
  SetNumLayers(recipe.model.spec, 24);
  const int64_t needed = MustPlan(recipe).predicted.peak_bytes;
  recipe.cluster.memory_limit_bytes = needed * 3 / 4;
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  ASSERT_EQ(ExitCodeFor(plan.status()), ExitCode::kInfeasible) << plan.status();
  EXPECT_THAT(MessageOf(plan), HasSubstr("optimizer"));
  // The advice works, when followed.
  EXPECT_THAT(MessageOf(plan), HasSubstr("parallel.zero_stage = 1"));
  recipe.parallel.zero_stage = 1;
  ExpectSound(MustPlan(recipe), recipe);
}

TEST(Plan, AMicroBatchThatIsTooLargeIsAdvisedDown) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.parallel.zero_stage = 3;
  recipe.parallel.recompute = "none";
  recipe.train.micro_batch = 12;
  recipe.cluster.memory_limit_bytes = MustPlan(recipe).predicted.peak_bytes / 2;
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  ASSERT_EQ(ExitCodeFor(plan.status()), ExitCode::kInfeasible);
  EXPECT_THAT(MessageOf(plan), HasSubstr("train.micro_batch = "));
  EXPECT_THAT(MessageOf(plan), ::testing::Not(HasSubstr("parallel.zero_stage =")));
}

TEST(Plan, WhenOnlyMoreWorkersHelpItSaysHowMany) {
  recipe::Recipe recipe = SmallRecipe(1);
  SetNumLayers(recipe.model.spec, 48);
  recipe.data.seq_len = 16;
  recipe.train.batch_sequences = 8;
  recipe.cluster.memory_limit_bytes = 180 * kMiB;  // 16 bytes x 36 M parameters do not fit
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  ASSERT_EQ(ExitCodeFor(plan.status()), ExitCode::kInfeasible);
  EXPECT_THAT(MessageOf(plan), HasSubstr("on 4 workers: cluster.devices_per_node = 4"));
  recipe.cluster.devices_per_node = 4;
  ExpectSound(MustPlan(recipe), recipe);
}

TEST(Plan, MistakesAreUsageErrorsThatNameTheField) {
  const std::pair<const char*, std::function<void(recipe::Recipe&)>> mistakes[] = {
      {"train.batch_sequences", [](recipe::Recipe& r) { r.train.batch_sequences = 22; }},
      {"20 and 24", [](recipe::Recipe& r) { r.train.batch_sequences = 22; }},
      {"train.micro_batch", [](recipe::Recipe& r) { r.train.micro_batch = 4; }},
      {"parallel.tp (3)", [](recipe::Recipe& r) { r.parallel.tp = 3; }},
      {"parallel.pp (3)", [](recipe::Recipe& r) { r.parallel.pp = 3; }},
      {"blocks of the model", [](recipe::Recipe& r) { r.parallel.pp = 4, r.parallel.virtual_stages = 40; }},
      {"dp_shard 3", [](recipe::Recipe& r) { r.parallel.dp_shard = 3; }},
      {"dp_replicate 2", [](recipe::Recipe& r) { r.parallel.dp_replicate = 2, r.parallel.dp_shard = 4; }},
      {"zero_stage", [](recipe::Recipe& r) { r.parallel.zero_stage = 0, r.parallel.dp_shard = 2; }},
      {"zero_stage", [](recipe::Recipe& r) { r.parallel.zero_stage = 3, r.parallel.dp_replicate = 4; }},
      {"train.precision", [](recipe::Recipe& r) { r.train.precision = "fp8"; }},
      {"cluster.device", [](recipe::Recipe& r) { r.cluster.device = "mi300x"; }},
      {"h100", [](recipe::Recipe& r) { r.cluster.device = "h1000"; }},
      {"cluster.nodes", [](recipe::Recipe& r) { r.cluster.nodes = int64_t{1} << 40; }},
      {"cluster.nodes", [](recipe::Recipe& r) { r.cluster.nodes = 0; }},
      {"model.heads", [](recipe::Recipe& r) { SetEach(r.model.spec, &model::Attention::heads, 0); }},
      {"train.batch_sequences", [](recipe::Recipe& r) { r.train.batch_sequences = int64_t{1} << 60; }},
      {"data.seq_len", [](recipe::Recipe& r) { r.data.seq_len = INT64_MAX; }},
      {"train.micro_batch",
       [](recipe::Recipe& r) { r.train.batch_sequences = 1 << 20, r.train.micro_batch = 1; }},
  };
  for (const auto& [named, spoil] : mistakes) {
    recipe::Recipe recipe = SmallRecipe(4);
    spoil(recipe);
    const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
    EXPECT_EQ(ExitCodeFor(plan.status()), ExitCode::kUsage) << named << ": " << plan.status();
    EXPECT_THAT(MessageOf(plan), HasSubstr(named));
  }
}

}  // namespace
}  // namespace trainctl::planner
