// `trainctl plan` for accelerators: the search's answer as a table, as JSON, as a recipe, over a sweep.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "apps/trainctl/command.h"
#include "planner/cluster_plan.h"
#include "recipe/load.h"

namespace trainctl::cli {

struct PlanOptions {
  std::string recipe;
  std::vector<std::string> sets;  // with those that --price, --objective and --as stand for
  std::vector<std::string> sweeps;
  std::string profile;  // of `trainctl calibrate FILE.csv`
  std::string write, trace, html;
  int top = 5;
  bool explain = false;
  bool draw = false;
  bool pareto = false;

  // The options that only a plan for accelerators has, for saying so.
  std::string ClusterOnly() const;
};

// Keeps `keep` layouts and reads the profile.
absl::StatusOr<planner::ClusterPlanOptions> SearchOptionsOf(const PlanOptions& options, int keep);

absl::StatusOr<ExitCode> PlanForCluster(const recipe::LoadedRecipe& loaded, const PlanOptions& options,
                                        const Output& output);

// --sweep KEY=V1,V2,...: a plan for each combination.
absl::StatusOr<ExitCode> SweepPlans(const PlanOptions& options, const Output& output);

}  // namespace trainctl::cli
