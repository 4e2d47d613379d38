// The field's rules of thumb as docs/design/planner.md tells them: each example's recipe, what the rule takes
// for granted, and what the planner answers. Classes of answers, not numbers: prices may become better. What
// our own trainer runs is planned for it; the rest are what-ifs of another until ours can.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "frameworks/cluster_plan.h"
#include "planner/make_plan.h"
#include "recipe/load.h"

namespace trainctl::frameworks {
namespace {

absl::StatusOr<Choice> PlanOf(const std::string& name, const std::vector<std::string>& sets = {}) {
  const std::string path = absl::StrCat(TRAINCTL_SOURCE_DIR, "/recipes/plan/", name, ".toml");
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe loaded,
                            recipe::LoadRecipe(path, sets, recipe::RealAccess(), recipe::Purpose::kWhatIf));
  TRAINCTL_ASSIGN_OR_RETURN(const ClusterPlan plan, MakeClusterPlan(loaded));
  Choice choice = plan.chosen;
  // They point into the plan's machine.
  choice.workload.device = nullptr;
  choice.workload.node = nullptr;
  return choice;
}

Choice Plan(const std::string& name, const std::vector<std::string>& sets = {}) {
  const absl::StatusOr<Choice> choice = PlanOf(name, sets);
  EXPECT_TRUE(choice.ok()) << name << ": " << choice.status();
  return choice.value_or(Choice{});
}

absl::StatusOr<layout::Layout> OwnPlanOf(const std::string& name, const std::vector<std::string>& sets = {}) {
  const std::string path = absl::StrCat(TRAINCTL_SOURCE_DIR, "/recipes/plan/", name, ".toml");
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe loaded,
                            recipe::LoadRecipe(path, sets, recipe::RealAccess(), recipe::Purpose::kPlan));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, planner::MakePlan(loaded.recipe, cluster::Host()));
  return plan.layout;
}

TEST(RulesOfThumb, WhatFitsOnOneGpuIsDataParallel) {
  ASSERT_TRUE(OwnPlanOf("llama3.2-1b_8xh100", {"cluster.devices_per_node=1"}).ok());
  const absl::StatusOr<layout::Layout> layout = OwnPlanOf("llama3.2-1b_8xh100");
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->mesh.data_degree(), 8);
}

TEST(RulesOfThumb, WhatDoesNotFitIsSharded) {
  const absl::StatusOr<layout::Layout> alone =
      OwnPlanOf("llama3.1-8b_8xh100", {"cluster.devices_per_node=1"});
  EXPECT_EQ(ExitCodeFor(alone.status()), ExitCode::kInfeasible) << alone.status();
  const absl::StatusOr<layout::Layout> layout = OwnPlanOf("llama3.1-8b_8xh100");
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_GE(layout->zero_stage, 1);
}

TEST(RulesOfThumb, ALayerThatDoesNotFitIsCut) {
  const absl::StatusOr<Choice> whole = PlanOf("wide-127b_64xa100", {"parallel.tp=1", "parallel.offload=[]"});
  EXPECT_EQ(ExitCodeFor(whole.status()), ExitCode::kInfeasible) << whole.status();
  EXPECT_THAT(std::string(whole.status().message()), ::testing::HasSubstr("tp"));
  EXPECT_GT(Plan("wide-127b_64xa100").workload.mesh.tp, 1);
  // ZeRO-3 alone gathers a layer as a whole, and is no way out; the rule says that it is.
  EXPECT_GT(Plan("wide-127b_64xa100", {"parallel.zero_stage=3"}).workload.mesh.tp, 1);
}

TEST(RulesOfThumb, SeveralNodesTakeZeroOrPipelinesOverFastLinksAndPipelinesAloneOverSlowOnes) {
  const Choice fast = Plan("llama3.1-70b_64xh100");
  const Choice slow = Plan("llama3.1-70b_64xh100_ethernet");
  EXPECT_TRUE(fast.workload.mesh.pp > 1 || fast.workload.zero_stage >= 1);
  // Over fast links ZeRO without a pipeline is as good, or nearly.
  EXPECT_LT(Plan("llama3.1-70b_64xh100", {"parallel.pp=1"}).time.step_seconds, 1.15 * fast.time.step_seconds);
  EXPECT_GT(slow.workload.mesh.pp, 1);
  // What is exchanged often stays within a node.
  EXPECT_LE(slow.workload.mesh.tp * slow.workload.mesh.cp, 8);
  // Without a pipeline the slow links cost more than twice the step.
  EXPECT_GT(Plan("llama3.1-70b_64xh100_ethernet", {"parallel.pp=1"}).time.step_seconds,
            2 * slow.time.step_seconds);
}

TEST(RulesOfThumb, LongSequencesAreCut) {
  const Choice choice = Plan("llama3.1-8b_512k_64xh100");
  EXPECT_GT(choice.workload.mesh.cp, 1);
  EXPECT_GT(Plan("llama3.1-8b_512k_64xh100", {"parallel.cp=1"}).time.step_seconds,
            1.05 * choice.time.step_seconds);
}

TEST(RulesOfThumb, ExpertsAreSpread) {
  const Choice choice = Plan("qwen3-30b-a3b_16xh100");
  EXPECT_GT(choice.workload.mesh.ep, 1);
  EXPECT_GT(Plan("qwen3-30b-a3b_16xh100", {"parallel.ep=1"}).time.step_seconds,
            1.05 * choice.time.step_seconds);
}

}  // namespace
}  // namespace trainctl::frameworks
