#include "planner/cluster_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "planner/cluster_plan_json.h"

namespace trainctl::planner {
namespace {

using ::testing::HasSubstr;

constexpr char kSmall[] = R"(recipe_version = 1
[model]
preset = "llama2-7b"
[data]
seq_len = 4096
[train]
batch_sequences = 64
[cluster]
device = "a100 80gb"
[plan]
framework = "megatron-core"
)";

recipe::Access NoFiles() {
  recipe::Access access = recipe::RealAccess();
  access.read_file = [](const std::string& path) -> absl::StatusOr<std::string> {
    return UsageError(absl::StrCat("there is no file ", path));
  };
  return access;
}

absl::StatusOr<recipe::LoadedRecipe> Load(const std::string& text,
                                          const std::vector<std::string>& sets = {}) {
  return recipe::LoadRecipeText(text, "r.toml", sets, NoFiles(), recipe::Purpose::kPlan);
}

absl::StatusOr<ClusterPlan> PlanOf(const std::string& text, const std::vector<std::string>& sets = {}) {
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe loaded, Load(text, sets));
  return MakeClusterPlan(loaded);
}

std::string ErrorOf(const std::vector<std::string>& sets, ExitCode code = ExitCode::kUsage) {
  const absl::StatusOr<ClusterPlan> plan = PlanOf(kSmall, sets);
  if (plan.ok()) return "OK";
  EXPECT_EQ(ExitCodeFor(plan.status()), code) << plan.status();
  return std::string(plan.status().message());
}

TEST(ClusterPlan, WhatTheRecipeFixesIsFixed) {
  const absl::StatusOr<ClusterPlan> plan =
      PlanOf(kSmall, {"parallel.tp=4", "parallel.pp=2", "parallel.recompute=full", "train.micro_batch=2"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const pricing::Workload& w = plan->chosen.workload;
  EXPECT_EQ(w.degrees.tp, 4);
  EXPECT_EQ(w.degrees.pp, 2);
  EXPECT_EQ(w.degrees.world_size(), 8);  // of the DGX A100 that the device stands in by default
  EXPECT_EQ(w.recompute, pricing::RecomputeKind::kFull);
  EXPECT_EQ(w.micro_batch, 2);
  EXPECT_TRUE(plan->chosen.fits);
  EXPECT_LE(plan->chosen.memory.upper_bytes, plan->memory_limit_bytes);
}

TEST(ClusterPlan, ARecipeWithEverythingFixedPlansToTheSame) {
  for (const char* objective : {"step_time", "headroom", "fewest_gpus"}) {
    const std::vector<std::string> sets = {"cluster.nodes=2", "parallel.pp=2", "parallel.cp=1",
                                           absl::StrCat("plan.objective=", objective)};
    const absl::StatusOr<recipe::LoadedRecipe> loaded = Load(kSmall, sets);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const absl::StatusOr<ClusterPlan> plan = MakeClusterPlan(*loaded);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::string fixed = FixedRecipe(*loaded, *plan, plan->chosen);
    const absl::StatusOr<ClusterPlan> again = PlanOf(fixed);
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << fixed;
    EXPECT_EQ(ChoiceToJson(*again, again->chosen).dump(1), ChoiceToJson(*plan, plan->chosen).dump(1))
        << fixed;
    EXPECT_TRUE(again->alternatives.empty()) << "something was left open:\n" << fixed;
  }
}

// 6.74B parameters: 6 x 6.61B that multiply, and 12 layers x hidden x seq of attention at half.
TEST(ClusterPlan, ModelFlopsAreThoseOfTheTrainersOwnCount) {
  for (const char* name : {"llama2-7b", "llama3.1-70b", "llama3.2-1b"}) {
    const model::ModelSpec spec = *model::Preset(name);
    const double own = model::FlopsPerToken(spec, 4096);
    EXPECT_NEAR(ModelFlopsPerToken(pricing::FromModelSpec(spec), 4096) / own, 1, 1e-3) << name;
  }
}

TEST(ClusterPlan, FiguresFollowFromTheStep) {
  const absl::StatusOr<ClusterPlan> plan =
      PlanOf(kSmall, {"parallel.tp=8", "plan.price_per_gpu_hour=2", "train.steps=100"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Figures figures = FiguresOf(*plan, plan->chosen);
  const double step = plan->chosen.time.step_seconds;
  EXPECT_NEAR(figures.tokens_per_second_per_gpu, 64.0 * 4096 / 8 / step, 1e-6);
  EXPECT_NEAR(figures.run_seconds, 100 * step, 1e-6);
  EXPECT_NEAR(figures.run_dollars, 100 * step / 3600 * 8 * 2, 1e-9);
  // 312 TFLOP/s of the A100's data sheet.
  EXPECT_NEAR(figures.mfu, figures.model_flops_per_token * figures.tokens_per_second_per_gpu / 312e12, 1e-9);
}

TEST(EffectiveShare, IsThatOfTheFirstOrder) {
  // Nothing fails and saving is free.
  EXPECT_NEAR(EffectiveShare(3600, 0, 0, 1e15), 1, 1e-9);
  // A minute in an hour goes to saving, half an hour and ten minutes of 30 hours to failures.
  EXPECT_NEAR(EffectiveShare(3540, 60, 600, 30 * 3600), (3540.0 / 3600) / (1 + 2400.0 / 108000), 1e-12);
  // The best interval is that of Young: no other is better.
  const double save = 30;
  const double mtbf = 4 * 3600;
  const double best = std::sqrt(2 * save * mtbf);
  for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
    EXPECT_GT(EffectiveShare(best, save, 0, mtbf), EffectiveShare(best * factor, save, 0, mtbf)) << factor;
  }
}

TEST(ClusterPlan, AMachineOfOnesOwnIsPriced) {
  const std::vector<std::string> layout = {"parallel.tp=8", "parallel.recompute=none"};
  const absl::StatusOr<ClusterPlan> plain = PlanOf(kSmall, layout);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto with = [&](const char* set) {
    std::vector<std::string> sets = layout;
    sets.emplace_back(set);
    const absl::StatusOr<ClusterPlan> plan = PlanOf(kSmall, sets);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan->chosen.time.step_seconds;
  };
  EXPECT_LT(with("cluster.half_flops=900T"), plain->chosen.time.step_seconds);
  EXPECT_GT(with("cluster.scale_up_bandwidth=20GB/s"), plain->chosen.time.step_seconds);
  EXPECT_GT(with("cluster.memory_bandwidth=200GB/s"), plain->chosen.time.step_seconds);
  EXPECT_THAT(ErrorOf({"parallel.tp=8", "cluster.memory=2GiB", "parallel.offload=[]"}, ExitCode::kInfeasible),
              HasSubstr("of 2.00 GiB"));
}

TEST(ClusterPlan, EveryMistakeIsOneClearError) {
  EXPECT_THAT(ErrorOf({"cluster.device=h1000"}), HasSubstr("--set: cluster.device: "));
  EXPECT_THAT(ErrorOf({"cluster.node=dgx-h100"}), HasSubstr("has h100-sxm-80gb, not the a100-sxm-80gb"));
  EXPECT_THAT(ErrorOf({"cluster.node=dgx-h1"}), HasSubstr("cluster.node: "));
  EXPECT_THAT(ErrorOf({"cluster.nodes=1000000"}), HasSubstr("is more than the 1048576 devices"));
  EXPECT_THAT(ErrorOf({"model.preset=llama9-1b"}),
              HasSubstr("model.preset = 'llama9-1b' is not known; the nearest are llama"));
  EXPECT_THAT(ErrorOf({"plan.framework=torchtitn"}), HasSubstr("has no profile; there are megatron-core"));
  EXPECT_THAT(ErrorOf({"train.precision=fp8"}), HasSubstr("a100-sxm-80gb has no fp8; use \"bf16\""));
  EXPECT_THAT(ErrorOf({"parallel.dp_replicate=2"}), HasSubstr("says nothing while tp, pp or cp are free"));
  EXPECT_THAT(ErrorOf({"plan.deadline=10h"}), HasSubstr("plan.deadline needs the length of the run"));
  EXPECT_NE(ErrorOf({"parallel.tp=3"}), "OK");
  EXPECT_NE(ErrorOf({"train.batch_sequences=7", "parallel.tp=1", "parallel.pp=1", "parallel.cp=1"}), "OK");
}

}  // namespace
}  // namespace trainctl::planner
