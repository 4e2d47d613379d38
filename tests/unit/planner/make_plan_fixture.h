// Recipes, machines and checks for tests of MakePlan.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/status.h"
#include "model/presets.h"
#include "planner/make_plan.h"

namespace trainctl::planner {

using layout::Layout;
using layout::Recompute;
using layout::RecomputeName;
using plan::Candidate;
using plan::Plan;

inline constexpr int64_t kMiB = int64_t{1} << 20;

inline recipe::Recipe SmallRecipe(int64_t workers) {
  recipe::Recipe recipe;
  recipe.model.spec = *model::Preset("toy-5m");
  recipe.data.seq_len = 256;
  recipe.train.batch_sequences = 24;
  recipe.train.precision = "fp32";
  recipe.cluster.devices_per_node = workers;
  recipe.cluster.memory_limit_bytes = 1024 * kMiB;
  return recipe;
}

inline cluster::Host SomeHost() {
  cluster::Host host;
  host.allowed_cores = 4;
  host.memory_total_bytes = host.memory_available_bytes = 16384 * kMiB;
  return host;
}

inline std::string MessageOf(const absl::StatusOr<Plan>& plan) {
  return std::string(plan.status().message());
}

inline Plan MustPlan(const recipe::Recipe& recipe) {
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : Plan();
}

inline void ExpectSound(const Plan& plan, const recipe::Recipe& recipe) {
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
  // The step that workers will run is correct and needs the predicted memory.
  const plan::PlannedStep step = plan::BuildStep(plan, recipe.model.spec);
  EXPECT_TRUE(Check(step.step, step.ledger).ok()) << Check(step.step, step.ledger).status();
  EXPECT_EQ(simulate::SimulateMemory(step.step), plan.predicted);
}

}  // namespace trainctl::planner
