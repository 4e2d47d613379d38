#include "planner/make_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/counter_rng.h"
#include "base/status.h"
#include "cluster/catalogue.h"
#include "optim/optimizer.h"
#include "planner/choose.h"
#include "tests/unit/num_cases.h"

namespace trainctl::planner {
namespace {

using layout::Layout;
using layout::Recompute;
using layout::RecomputeName;
using plan::Candidate;
using plan::Chosen;
using plan::Plan;
using plan::PlanFromJson;
using plan::PlanToJson;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

recipe::Recipe SmallRecipe(int64_t workers) {
  recipe::Recipe recipe;
  recipe.model.spec = *model::Preset("toy-5m");
  recipe.data.seq_len = 256;
  recipe.train.batch_sequences = 24;
  recipe.train.precision = "fp32";
  recipe.cluster.devices_per_node = workers;
  recipe.cluster.memory_limit_bytes = 1024 * kMiB;
  return recipe;
}

cluster::Host SomeHost() {
  cluster::Host host;
  host.allowed_cores = 4;
  host.memory_total_bytes = host.memory_available_bytes = 16384 * kMiB;
  return host;
}

std::string MessageOf(const absl::StatusOr<Plan>& plan) { return std::string(plan.status().message()); }

Plan MustPlan(const recipe::Recipe& recipe) {
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : Plan();
}

void ExpectSound(const Plan& plan, const recipe::Recipe& recipe) {
  const Layout& layout = plan.layout;
  const int64_t workers = recipe.cluster.nodes * recipe.cluster.devices_per_node;
  EXPECT_EQ(layout.mesh.world_size(), workers);
  EXPECT_EQ(layout.micro_batch * layout.num_micro_batches * layout.mesh.data_degree(),
            recipe.train.batch_sequences);
  EXPECT_EQ(layout.mesh.pp, recipe.parallel.pp.value_or(layout.mesh.pp));
  EXPECT_EQ(layout.mesh.tp, recipe.parallel.tp.value_or(layout.mesh.tp));
  EXPECT_EQ(layout.zero_stage == 0, layout.mesh.dp_shard == 1);
  EXPECT_LE(plan.predicted.peak_bytes, plan.memory_limit_bytes);
  EXPECT_EQ(layout.zero_stage, recipe.parallel.zero_stage.value_or(layout.zero_stage));
  EXPECT_EQ(layout.mesh.dp_shard, recipe.parallel.dp_shard.value_or(layout.mesh.dp_shard));
  EXPECT_EQ(layout.micro_batch, recipe.train.micro_batch.value_or(layout.micro_batch));
  EXPECT_EQ(RecomputeName(layout.recompute),
            recipe.parallel.recompute.value_or(std::string(RecomputeName(layout.recompute))));
  int num_chosen = 0;
  for (const Candidate& candidate : plan.candidates) {
    EXPECT_FALSE(candidate.reason.empty());
    if (!candidate.chosen) continue;
    ++num_chosen;
    EXPECT_EQ(candidate.layout, layout);
    EXPECT_EQ(candidate.memory, plan.predicted);
    EXPECT_TRUE(candidate.fits);
  }
  EXPECT_EQ(num_chosen, 1);
  // What the workers will run is correct, and needs what was predicted.
  const plan::PlannedStep step = plan::BuildStep(plan, recipe.model.spec);
  EXPECT_TRUE(Check(step.step, step.ledger).ok()) << Check(step.step, step.ledger).status();
  EXPECT_EQ(simulate::SimulateMemory(step.step), plan.predicted);
}

TEST(Plan, RandomRecipesGetSoundPlansOrAReason) {
  int num_planned = 0, num_infeasible = 0;
  for (uint64_t seed = 0; seed < NumCases<uint64_t>(150); ++seed) {
    uint64_t draws = 0;
    const auto below = [&](uint64_t bound) { return RandomBelow(seed, 1, draws++, bound); };
    recipe::Recipe recipe = SmallRecipe(1 + static_cast<int64_t>(below(8)));
    recipe.model.spec.layers = 1 + static_cast<int64_t>(below(4));
    recipe.model.spec.tie_embeddings = below(2) == 0;
    const int64_t workers = recipe.cluster.devices_per_node;
    recipe.train.batch_sequences = workers * (1 + static_cast<int64_t>(below(12)));
    recipe.train.precision = below(2) == 0 ? "fp32" : "bf16";
    recipe.parallel.prefetch = below(2) == 0;
    recipe.checkpoint.async = below(2) == 0;
    recipe.cluster.memory_limit_bytes = kMiB * static_cast<int64_t>(8 + below(120));
    if (below(3) == 0) recipe.cluster.device = "h100-sxm-80gb";
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
    recipe.model.spec.heads = 4;
    recipe.model.spec.kv_heads = 2;
    recipe.model.spec.head_dim = recipe.model.spec.hidden / 4;
    recipe.model.spec.ffn = pick({128, 1024});
    recipe.model.spec.layers = pick({1, 2, 8});
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
  recipe.model.spec.layers = 24;  // states dominate
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
  recipe.model.spec.layers = 24;
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
  recipe.model.spec.layers = 2;
  recipe.parallel.pp = 2, recipe.parallel.tp = 1;
  recipe.parallel.schedule = "zbv";
  const Plan plan = MustPlan(recipe);
  ExpectSound(plan, recipe);
  EXPECT_EQ(plan.layout.pipeline.stage_layers, (std::vector<int64_t>{0, 1, 1, 0}));
}

// Four micro-batches through four ranks idle for nearly half of a step; through two, 256 of them hardly.
TEST(Plan, AnotherOrderThan1F1BIsTakenWhereItGains) {
  recipe::Recipe recipe = SmallRecipe(4);
  recipe.model.spec.layers = 16;
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
  recipe.model.spec.layers = 24;
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
  recipe.model.spec.layers = 48;
  recipe.data.seq_len = 16;
  recipe.train.batch_sequences = 8;
  recipe.cluster.memory_limit_bytes = 180 * kMiB;  // 16 bytes x 36 M parameters do not fit
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  ASSERT_EQ(ExitCodeFor(plan.status()), ExitCode::kInfeasible);
  EXPECT_THAT(MessageOf(plan), HasSubstr("on 4 workers: cluster.devices_per_node = 4"));
  recipe.cluster.devices_per_node = 4;
  ExpectSound(MustPlan(recipe), recipe);
}

TEST(Plan, ADeviceIsPlannedWithWhatIsKnownOfIt) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.train.precision = "auto";
  recipe.cluster.memory_limit_bytes.reset();
  cluster::Host host = SomeHost();

  // By its name: nine tenths of what the catalogue has.
  recipe.cluster.device = "h100-sxm-80gb";
  absl::StatusOr<Plan> plan = MakePlan(recipe, host);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const double bytes = cluster::FindDevice("h100-sxm-80gb")->device->memory_bytes.value;
  EXPECT_EQ(plan->memory_limit_bytes, static_cast<int64_t>(0.9 * bytes));
  EXPECT_EQ(plan->device, "cuda");
  EXPECT_EQ(plan->setting.types.compute, DType::kBF16);
  EXPECT_TRUE(plan::BuildStep(*plan, recipe.model.spec).options.setting.on_device);

  // Nothing of this machine counts for a device that is named: the plan is the same wherever it is made.
  const Plan elsewhere = *plan;
  host.accelerator = "NVIDIA A100-SXM4-40GB";
  host.accelerator_memory_bytes = int64_t{40} << 30;
  host.allowed_cores = 64;
  plan = MakePlan(recipe, host);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->step_hash, elsewhere.step_hash);
  EXPECT_EQ(plan->notes, elsewhere.notes);
  EXPECT_EQ(plan->candidates, elsewhere.candidates);

  // "cuda" is what this machine's driver shows, and without one nothing is known.
  recipe.cluster.device = "cuda";
  EXPECT_EQ(ExitCodeFor(MakePlan(recipe, SomeHost()).status()), ExitCode::kEnvironment);
  plan = MakePlan(recipe, host);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->memory_limit_bytes, static_cast<int64_t>(0.9 * static_cast<double>(int64_t{40} << 30)));
  EXPECT_EQ(plan->hardware, "a100-sxm-40gb");

  // A device that the catalogue does not have gets an order of layouts and no times.
  host.accelerator = "NVIDIA Z9000";
  plan = MakePlan(recipe, host);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->hardware, "");
  EXPECT_THAT(plan->notes, Contains(HasSubstr("NVIDIA Z9000 is not in the catalogue")));
}

TEST(Plan, WhatWasMeasuredOfADeviceIsOfTheOneThatIsHere) {
  recipe::Recipe recipe = SmallRecipe(1);
  recipe.cluster.memory_limit_bytes.reset();
  recipe.cluster.device = "cuda";
  recipe.train.precision = "bf16";
  cluster::Host host = SomeHost();
  host.accelerator = "NVIDIA A100-SXM4-40GB";
  host.accelerator_memory_bytes = int64_t{40} << 30;
  // Half as fast as the catalogue has it, whatever that is.
  const Plan usual = *MakePlan(recipe, host);
  simulate::MachineProfile profile;
  const model::Product product{DType::kBF16, 4096, 4096, 4096, 2};
  simulate::Work work;
  work.products = {{product}};
  profile.devices.push_back({.name = host.accelerator,
                             .bytes_per_second = 0.5 / usual.rates[simulate::Resource::kMovedBytes],
                             .launch_seconds = 2 * usual.rates[simulate::Resource::kOperators],
                             .products = {{product, 2 * usual.rates.Seconds(work)}}});
  const absl::StatusOr<Plan> plan = MakePlan(recipe, host, &profile);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->rates.measured);
  EXPECT_NEAR(plan->rates.scales.products, 2, 1e-9);
  const auto step_seconds = [](const Plan& of) {
    return std::find_if(of.candidates.begin(), of.candidates.end(),
                        [](const Candidate& c) { return c.chosen; })
        ->step_seconds;
  };
  EXPECT_GT(step_seconds(*plan), step_seconds(usual));
  const absl::StatusOr<Plan> read = PlanFromJson(PlanToJson(*plan), "plan.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->rates == plan->rates);

  // Another device, and one that the recipe names, are priced by the catalogue.
  profile.devices[0].name = "NVIDIA H100 80GB HBM3";
  EXPECT_TRUE(MakePlan(recipe, host, &profile)->rates == usual.rates);
  profile.devices[0].name = host.accelerator;
  recipe.cluster.device = "a100-sxm-40gb";
  EXPECT_FALSE(MakePlan(recipe, host, &profile)->rates.measured);

  // Of a device that nobody knows it is all there is.
  recipe.cluster.device = "cuda";
  host.accelerator = profile.devices[0].name = "NVIDIA Z9000";
  const absl::StatusOr<Plan> unknown = MakePlan(recipe, host, &profile);
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_TRUE(unknown->rates.measured);
  EXPECT_GT(unknown->peak_flops, 0);
  EXPECT_THAT(unknown->notes, Contains(HasSubstr("that `trainctl calibrate` measured")));
}

TEST(Plan, OfADeviceTheKernelOfAttentionAndTheWorkspaceAreThoseThatWillRun) {
  recipe::Recipe recipe = SmallRecipe(1);
  recipe.train.precision = "bf16";
  recipe.cluster.memory_limit_bytes.reset();
  recipe.cluster.device = "h100-sxm-80gb";
  recipe.data.packing = "continuous";
  const Plan whole = MustPlan(recipe);
  EXPECT_EQ(whole.setting.workspace_bytes, int64_t{32} << 20);
  const absl::StatusOr<Plan> read = PlanFromJson(PlanToJson(whole), "plan.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->rates == whole.rates);
  EXPECT_EQ(read->setting, whole.setting);
  // Packed documents, or bits that repeat, take the slower kernel; a step takes longer then.
  recipe.run.deterministic = true;
  const Plan ordered = MustPlan(recipe);
  EXPECT_FALSE(ordered.rates == whole.rates);
  EXPECT_GT(plan::Chosen(ordered).step_seconds, plan::Chosen(whole).step_seconds);
  recipe.run.deterministic = false;
  recipe.data.packing = "documents";
  EXPECT_TRUE(MustPlan(recipe).rates == ordered.rates);
  // An older device's library is content with less.
  recipe.cluster.device = "a100-sxm-40gb";
  EXPECT_EQ(MustPlan(recipe).setting.workspace_bytes, 8320 << 10);
}

TEST(Plan, WhatADeviceDoesNotHaveIsNotPlanned) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.cluster.device = "v100-sxm2-32gb";
  recipe.cluster.memory_limit_bytes.reset();
  recipe.train.precision = "bf16";
  EXPECT_THAT(MessageOf(MakePlan(recipe, SomeHost())), HasSubstr("v100-sxm2-32gb has no bf16"));
  recipe.train.precision = "auto";
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->setting.types.compute, DType::kF32);
  recipe.cluster.memory_limit_bytes = int64_t{500} << 30;
  EXPECT_THAT(MessageOf(MakePlan(recipe, SomeHost())), HasSubstr("is more than the"));
  recipe.cluster.device = "cuda";
  recipe.cluster.node = "dgx-h100";
  EXPECT_THAT(MessageOf(MakePlan(recipe, SomeHost())), HasSubstr("cluster.node: "));
}

TEST(Plan, AMachineThatProgramsAloneFillIsNamedAsThat) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.cluster.memory_limit_bytes.reset();
  cluster::Host host = SomeHost();
  host.memory_available_bytes = 1000 * kMiB;  // 425 MiB for each of two, which take 512
  const absl::StatusOr<Plan> plan = MakePlan(recipe, host);
  EXPECT_EQ(ExitCodeFor(plan.status()), ExitCode::kInfeasible);
  EXPECT_THAT(MessageOf(plan),
              HasSubstr("no memory is left for tensors: 850.00 MiB of this machine's 1000.00 MiB"));
  EXPECT_THAT(MessageOf(plan), HasSubstr("fewer workers"));
  EXPECT_THAT(MessageOf(plan), ::testing::Not(HasSubstr("of 0 B")));
  recipe.cluster.devices_per_node = 1;
  EXPECT_TRUE(MakePlan(recipe, host).ok());
}

// More workers on one machine have less memory each: what is advised then has to fit in that.
TEST(Plan, AdviceToTakeMoreWorkersCountsTheirSharesOfTheMachine) {
  int num_infeasible = 0;
  for (const char* preset : {"toy-5m", "llama-25m", "llama-120m", "llama-1b"}) {
    for (const int64_t gib : {1, 2, 3, 4, 8, 16, 32}) {
      recipe::Recipe recipe = SmallRecipe(1);
      recipe.model.spec = *model::Preset(preset);
      recipe.cluster.memory_limit_bytes.reset();
      cluster::Host host = SomeHost();
      host.memory_available_bytes = gib * 1024 * kMiB;
      const std::string message = MessageOf(MakePlan(recipe, host));
      const size_t at = message.find("cluster.devices_per_node = ");
      num_infeasible += message.empty() ? 0 : 1;
      if (at == std::string::npos) continue;
      recipe.cluster.devices_per_node = std::stoll(message.substr(at + 27));
      recipe.parallel.zero_stage = 3;
      recipe.parallel.recompute = "full";
      recipe.train.micro_batch = 1;
      const size_t batch = message.find("train.batch_sequences = ");
      if (batch != std::string::npos) recipe.train.batch_sequences = std::stoll(message.substr(batch + 24));
      const absl::StatusOr<Plan> plan = MakePlan(recipe, host);
      EXPECT_TRUE(plan.ok()) << message << "\n" << plan.status();
    }
  }
  EXPECT_GT(num_infeasible, 3);
}

TEST(Plan, SlowLinksBetweenNodesAreSlowerThanFastOnes) {
  const auto seconds = [](int64_t nodes, std::optional<int64_t> bandwidth) {
    recipe::Recipe recipe = SmallRecipe(8);
    recipe.model.spec = *model::Preset("llama3.2-1b");
    recipe.cluster.device = "h100-sxm-80gb";
    recipe.cluster.nodes = nodes;
    recipe.cluster.scale_out_bandwidth = bandwidth;
    recipe.parallel.pp = recipe.parallel.tp = 1;
    recipe.train.batch_sequences = 8 * nodes;
    recipe.train.precision = "bf16";
    recipe.cluster.memory_limit_bytes.reset();
    return Chosen(MustPlan(recipe)).step_seconds;
  };
  EXPECT_LT(seconds(1, std::nullopt), seconds(2, std::nullopt));
  EXPECT_LT(seconds(2, std::nullopt), seconds(2, int64_t{3'000'000'000}));
}

// What is frozen plans to the same step on a machine with another amount of free memory and of cores.
TEST(Plan, AFrozenRecipePlansToTheSameStepOnAnotherDay) {
  for (const char* device : {"cpu", "cuda", "h100-sxm-80gb"}) {
    recipe::Recipe recipe = SmallRecipe(4);
    recipe.train.precision = "auto";
    recipe.cluster.memory_limit_bytes.reset();
    recipe.cluster.device = device;
    cluster::Host host = SomeHost();
    host.memory_available_bytes = 2600 * kMiB;
    host.accelerator = "NVIDIA A100-SXM4-40GB";
    host.accelerator_memory_bytes = int64_t{40} << 30;
    const absl::StatusOr<Plan> plan = MakePlan(recipe, host);
    ASSERT_TRUE(plan.ok()) << plan.status();
    host.memory_available_bytes = 64 * 1024 * kMiB;
    host.allowed_cores = 32;
    host.native_bf16 = true;
    const absl::StatusOr<Plan> again = MakePlan(Frozen(recipe, *plan), host);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->layout, plan->layout);
    EXPECT_EQ(again->step_hash, plan->step_hash);
    EXPECT_EQ(again->memory_limit_bytes, plan->memory_limit_bytes);
  }
}

TEST(Plan, AWorkerRefusesAnotherStepThanThePlans) {
  const recipe::Recipe recipe = SmallRecipe(2);
  Plan plan = MustPlan(recipe);
  EXPECT_TRUE(plan::RebuildStep(plan, recipe.model.spec).ok());
  plan.layout.num_micro_batches *= 2;  // as if a builder of another version had made it
  const absl::Status status = plan::RebuildStep(plan, recipe.model.spec).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(status.message()), HasSubstr(plan.step_hash));
}

// A device's own collectives sum in their own buffers; tokens and a part of the gradient arrive beside the
// rest.
TEST(Plan, ADevicesBuffersAreItsOwn) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.cluster.device = "cuda";
  recipe.cluster.memory_limit_bytes = int64_t{1} << 30;
  recipe.parallel.zero_stage = 2;
  recipe.checkpoint.async = true;
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const plan::PlannedStep step = plan::BuildStep(*plan, recipe.model.spec);
  int64_t largest = 0;
  for (const layout::Bucket& bucket : step.ledger.buckets()) largest = std::max(largest, bucket.padded_numel);
  EXPECT_EQ(step.ProgramOf(0).receive_buffer_bytes, largest / 2 * 4);
  const auto bytes_of = [&](const std::string& name) {
    int64_t bytes = 0;
    for (const schedule::Value& value : step.ProgramOf(0).values)
      bytes += ValueKindName(value.kind) == name ? value.bytes : 0;
    return bytes;
  };
  EXPECT_EQ(bytes_of("checkpoint copy"), 0);  // in the host's memory
  EXPECT_EQ(bytes_of("tokens"), recipe.train.batch_sequences / 2 * recipe.data.seq_len * 13);
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
      {"model.heads", [](recipe::Recipe& r) { r.model.spec.heads = 0; }},
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

TEST(Plan, APipelineIsPlannedAsItIsRebuilt) {
  recipe::Recipe recipe = SmallRecipe(4);
  recipe.train.batch_sequences = 32;
  recipe.train.micro_batch = 2;
  recipe.parallel.pp = 2;
  recipe.parallel.zero_stage = 3;
  recipe.parallel.schedule = "zb-h1";
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layout.mesh.pp, 2);
  EXPECT_EQ(plan->layout.mesh.dp_shard, 2);
  EXPECT_EQ(plan->layout.num_micro_batches, 8) << "32 sequences, of two pipelines, two at a time";
  const absl::StatusOr<Plan> read = plan::PlanFromJson(plan::PlanToJson(*plan), "plan.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->layout, plan->layout);
  const absl::StatusOr<plan::PlannedStep> rebuilt = plan::RebuildStep(*read, recipe.model.spec);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  ASSERT_EQ(rebuilt->step.programs.size(), 2u);
  int64_t most = 0;
  for (const schedule::Program& program : rebuilt->step.programs)
    most = std::max(most, simulate::SimulateMemory(program).peak_bytes);
  EXPECT_EQ(plan->predicted.peak_bytes, most) << "of the stage that needs most";
  EXPECT_LE(plan->predicted.peak_bytes, plan::Chosen(*plan).memory.peak_bytes);
}

TEST(Plan, StatedRecomputedLayersAreHonoured) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.parallel.pp = 2;
  recipe.parallel.stage_layers = {5, 1};
  recipe.train.micro_batch = 1;
  const auto peak_of = [&](const char* recompute, std::optional<std::vector<int64_t>> layers) {
    recipe.parallel.recompute = recompute;
    recipe.parallel.recomputed_layers = std::move(layers);
    return MustPlan(recipe).predicted.peak_bytes;
  };
  const int64_t none = peak_of("none", {}), all = peak_of("full", {});
  const int64_t one = peak_of("full", {{1, 0}}), two = peak_of("full", {{2, 0}});
  EXPECT_GT(none, one);
  EXPECT_GT(one, two);
  EXPECT_GE(two, all);
  const Plan plan = MustPlan(recipe);
  EXPECT_EQ(plan.layout.recomputed_layers, (std::vector<int64_t>{2, 0}));
  const absl::StatusOr<Plan> read = PlanFromJson(PlanToJson(plan), "plan.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, plan);
  EXPECT_TRUE(plan::RebuildStep(*read, recipe.model.spec).ok());
  EXPECT_EQ(MustPlan(Frozen(recipe, plan)).step_hash, plan.step_hash) << "what plan --write writes";

  // One number is of both stages, and all of a stage that has fewer; it says what is done with them, too.
  recipe.parallel.recompute.reset();
  recipe.parallel.recomputed_layers = {{2}};
  EXPECT_EQ(MustPlan(recipe).layout.recompute, Recompute::kFull);
  EXPECT_EQ(MustPlan(recipe).layout.recomputed_layers, (std::vector<int64_t>{2, 1}));
  // As many as there are: the layout, and the step, that have no number.
  const std::string hash = (recipe.parallel.recomputed_layers = {{6}}, MustPlan(recipe).step_hash);
  EXPECT_TRUE(MustPlan(recipe).layout.recomputed_layers.empty());
  peak_of("full", {});
  EXPECT_EQ(MustPlan(recipe).step_hash, hash);
}

TEST(Plan, TensorParallelismIsPlannedAsItIsRebuilt) {
  recipe::Recipe recipe = SmallRecipe(4);
  recipe.parallel.tp = 2;
  recipe.parallel.zero_stage = 3;
  Plan plan = MustPlan(recipe);
  EXPECT_EQ(plan.layout.mesh.ToString(), "dp_shard=2 tp=2");
  EXPECT_TRUE(plan.layout.sequence_parallel);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("parallel.sequence_parallel = auto: true")));
  const int64_t with_parts = plan.predicted.peak_bytes;
  const std::string hash = plan.step_hash;
  recipe.parallel.sequence_parallel = false;
  recipe.train.micro_batch = plan.layout.micro_batch;
  plan = MustPlan(recipe);
  EXPECT_GT(plan.predicted.peak_bytes, with_parts) << "norms and residuals of all tokens";
  EXPECT_NE(plan.step_hash, hash);
  const absl::StatusOr<Plan> read = plan::PlanFromJson(plan::PlanToJson(plan), "plan.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->layout, plan.layout);
  EXPECT_TRUE(plan::RebuildStep(*read, recipe.model.spec).ok());
}

TEST(Plan, AutomaticPrecisionFollowsTheCpuAndSaysSo) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.train.precision = "auto";
  cluster::Host host = SomeHost();
  absl::StatusOr<Plan> plan = MakePlan(recipe, host);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->setting.types.compute, DType::kF32);
  EXPECT_THAT(plan->notes, Contains(HasSubstr("train.precision = auto: fp32")));
  host.native_bf16 = true;
  plan = MakePlan(recipe, host);
  EXPECT_EQ(plan->setting.types.compute, DType::kBF16);
  EXPECT_THAT(plan->notes, Contains(HasSubstr("train.precision = auto: bf16")));
}

TEST(Plan, ThreadsAndMemoryAreTheMachinesShare) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.cluster.memory_limit_bytes.reset();
  const Plan plan = MustPlan(recipe);
  EXPECT_EQ(plan.threads_per_worker, 2);
  // Two workers of a machine with 16 GiB: each less than half of it, more than a third.
  EXPECT_LT(plan.memory_limit_bytes, 8192 * kMiB);
  EXPECT_GT(plan.memory_limit_bytes, 16384 * kMiB / 3);
  recipe.cluster.threads_per_worker = 3;
  EXPECT_EQ(MustPlan(recipe).threads_per_worker, 3);
  recipe.cluster.threads_per_worker.reset();
  recipe.cluster.devices_per_node = 8;
  EXPECT_EQ(MustPlan(recipe).threads_per_worker, 1);
  EXPECT_THAT(MustPlan(recipe).notes, Contains(HasSubstr("8 workers share 4 cores")));
}

// A worker shares its machine with the workers of that machine, not with those of all of them.
TEST(Plan, EachMachineHasMemoryAndCoresOfItsOwn) {
  recipe::Recipe one = SmallRecipe(2);
  one.cluster.memory_limit_bytes.reset();
  recipe::Recipe three = one;
  three.cluster.nodes = 3;
  const Plan plan = MustPlan(three);
  EXPECT_EQ(plan.layout.mesh.world_size(), 6);
  EXPECT_EQ(plan.memory_limit_bytes, MustPlan(one).memory_limit_bytes);
  EXPECT_EQ(plan.threads_per_worker, MustPlan(one).threads_per_worker);
  EXPECT_EQ(plan.rates, MustPlan(one).rates);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("2 workers on each machine")));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("the network between them is not measured")));
  EXPECT_THAT(MustPlan(one).notes, ::testing::Not(Contains(HasSubstr("not measured"))));
  ExpectSound(plan, three);
}

// More machines bring memory of their own: what a worker may use stays, however many there are.
TEST(Plan, AdviceToTakeMoreMachinesCountsTheirMemory) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.model.spec = *model::Preset("llama-1b");
  recipe.cluster.nodes = 2;
  recipe.cluster.memory_limit_bytes.reset();
  cluster::Host host = SomeHost();
  host.memory_available_bytes = int64_t{7} * 1024 * kMiB;
  const std::string message = MessageOf(MakePlan(recipe, host));
  const size_t at = message.find("cluster.nodes = ");
  ASSERT_NE(at, std::string::npos) << message;
  recipe.cluster.nodes = std::stoll(message.substr(at + 16));
  const size_t batch = message.find("train.batch_sequences = ");
  if (batch != std::string::npos) recipe.train.batch_sequences = std::stoll(message.substr(batch + 24));
  const absl::StatusOr<Plan> plan = MakePlan(recipe, host);
  EXPECT_TRUE(plan.ok()) << message << "\n" << plan.status();
}

TEST(PlanJson, SurvivesTheRoundTrip) {
  for (int64_t workers : {1, 2, 6}) {
    recipe::Recipe recipe = SmallRecipe(workers);
    recipe.train.precision = workers == 2 ? "bf16" : "fp32";
    recipe.parallel.prefetch = workers != 2;
    recipe.checkpoint.async = workers == 2;
    recipe.parallel.recompute = workers == 6 ? "full" : "none";
    const Plan plan = MustPlan(recipe);
    const absl::StatusOr<Plan> back = PlanFromJson(PlanToJson(plan), "plan.json");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, plan);
  }
}

TEST(PlanJson, TheOptimizerIsAdamWWhereAnOlderPlanNamesNone) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.optimizer.name = "lion";
  const std::string text = PlanToJson(MustPlan(recipe));
  const auto read = [&](const std::string& to) {
    return PlanFromJson(absl::StrReplaceAll(text, {{"\"optimizer\": \"lion\",", to}}), "plan.json");
  };
  EXPECT_EQ(read("\"optimizer\": \"lion\",")->setting.optimizer, optim::Find("lion"));
  EXPECT_EQ(read("")->setting.optimizer, &optim::kAdamW);
  EXPECT_EQ(MessageOf(read("\"optimizer\": \"adam\",")),
            "plan.json: field 'optimizer' is \"adam\", not adamw, lion, sgd");
}

TEST(PlanJson, ANewerVersionIsRefusedWithAClearWord) {
  const std::string text =
      absl::StrReplaceAll(PlanToJson(MustPlan(SmallRecipe(2))), {{"plan.v1", "plan.v2"}});
  const absl::Status status = PlanFromJson(text, "run/plan.json").status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_THAT(std::string(status.message()), HasSubstr("newer trainctl"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("run/plan.json"));
}

TEST(PlanJson, DamageIsAnErrorThatNamesTheFieldAndNothingWorse) {
  const std::string text = PlanToJson(MustPlan(SmallRecipe(2)));
  const std::pair<std::pair<const char*, const char*>, const char*> damages[] = {
      {{"\"zero_stage\": 0", "\"zero_stage\": 7"}, "zero_stage"},
      {{"\"dp_replicate\": 2", "\"dp_replicate\": 2000000000"}, "mesh"},
      {{"\"accumulation\"", "\"accumulations\""}, "accumulation"},
      {{"\"micro_batch\": ", "\"micro_batch\": -"}, "micro_batch"},
      {{"\"recompute\": \"none\"", "\"recompute\": \"some\""}, "recompute"},
      {{"\"compute_dtype\": \"F32\"", "\"compute_dtype\": \"I32\""}, "compute_dtype"},
      {{"\"master_dtype\": \"F32\"", "\"master_dtype\": \"BF16\""}, "master_dtype is BF16"},
      {{"\"gradient_dtype\": \"F32\"", "\"gradient_dtype\": \"F64\""}, "not F32"},
      {{"\"prefetch\": true", "\"prefetch\": 1"}, "prefetch"},
      {{"\"fits\": true", "\"fits\": null"}, "fits"},
      {{"trainctl.plan", "trainctl.flan"}, "schema"},
      {{"\"candidates\": [", "\"candidates\": [3,"}, "candidates[0]"},
  };
  for (const auto& [replacement, named] : damages) {
    const std::string damaged = absl::StrReplaceAll(text, {replacement});
    ASSERT_NE(damaged, text) << named;
    const absl::Status status = PlanFromJson(damaged, "plan.json").status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << named << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
  }
  // Every truncation but that of the final newline.
  for (size_t length = 0; length + 1 < text.size(); length += 7) {
    EXPECT_EQ(ExitCodeFor(PlanFromJson(absl::string_view(text).substr(0, length), "plan.json").status()),
              ExitCode::kBadData);
  }
}

// With only what had to be said in the recipe; the data is not looked at.
constexpr char kOpen[] = R"(recipe_version = 1
[model]
preset = "toy-5m"
[data]
seq_len = 256
packing = "continuous"
[[data.train]]
files = ["text.txt"]
[train]
steps = 10
batch_sequences = 24
precision = "auto"
[cluster]
)";

TEST(Plan, ARecipeWithEverythingFixedPlansToTheSame) {
  recipe::Access access = recipe::RealAccess();
  access.expand_glob = [](const std::string& pattern) -> absl::StatusOr<std::vector<std::string>> {
    return std::vector<std::string>{pattern};
  };
  access.read_file = [](const std::string&) { return "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"; };
  const auto load = [&](const std::string& text) {
    return recipe::LoadRecipeText(text, "r.toml", {}, access);
  };
  for (const char* cluster : {"devices_per_node = 2\n", "devices_per_node = 4\nmemory_limit = \"180MiB\"\n",
                              "devices_per_node = 2\n[parallel]\npp = 2\nschedule_file = \"order.csv\"\n"}) {
    const absl::StatusOr<recipe::LoadedRecipe> loaded = load(absl::StrCat(kOpen, cluster));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const Plan plan = MustPlan(loaded->recipe);
    const std::string text = FixedRecipe(*loaded, plan);
    const absl::StatusOr<recipe::LoadedRecipe> fixed = load(text);
    ASSERT_TRUE(fixed.ok()) << fixed.status() << "\n" << text;
    const Plan again = MustPlan(fixed->recipe);
    EXPECT_EQ(again.layout, plan.layout) << text;
    EXPECT_EQ(again.predicted, plan.predicted) << text;
    EXPECT_EQ(again.setting.types.compute, plan.setting.types.compute) << text;
    EXPECT_EQ(again.threads_per_worker, plan.threads_per_worker) << text;
    EXPECT_EQ(Chosen(again).reason, "what the recipe asks for") << text;
  }
}

}  // namespace
}  // namespace trainctl::planner
