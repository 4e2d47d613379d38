// --explain of a plan for accelerators.
#pragma once

#include "base/json.h"
#include "planner/cluster_explain.h"

namespace trainctl::cli {

void PrintExplanation(const planner::ClusterPlan& plan, const planner::Explanation& explanation, bool color);
Json ExplanationToJson(const planner::Explanation& explanation);

}  // namespace trainctl::cli
