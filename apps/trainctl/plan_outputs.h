// What `trainctl plan` can show of a plan beside its table: a drawing in the terminal, a trace, a page. The
// verb itself is in cmd_plan.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "planner/cluster_plan.h"

namespace trainctl::cli {

struct PlanShows {
  bool draw = false;  // --draw
  std::string trace;  // --trace OUT; empty: none
  std::string html;   // --html OUT; empty: none; the plan is best made with its Pareto front
};

// Columns of the terminal at standard output; 120 where it is none.
int TerminalWidth();

// Draws to standard output and writes the files, in this order. EnvironmentError where a file cannot be
// written.
absl::Status ShowPlan(const planner::ClusterPlan& plan, const std::vector<std::string>& recipe_notes,
                      const PlanShows& shows, bool color);

}  // namespace trainctl::cli
