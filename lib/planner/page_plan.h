// The page of a plan on accelerators: page.h's, with what the search found. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "planner/cluster_plan.h"
#include "planner/page.h"

namespace trainctl::planner {

// The chosen layout; its figures among the facts; the front (ClusterPlanOptions::pareto) and what else was
// priced as points of step time against memory; the plan's notes and `notes`.
PageInput PageOfPlan(const ClusterPlan& plan, const std::vector<std::string>& notes);

}  // namespace trainctl::planner
