// Why a plan for a cluster is what it is: what binds it, what each neighbour would cost, how far to trust it.
// Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "frameworks/cluster_plan.h"
#include "report/page.h"

namespace trainctl::frameworks {

struct Explanation {
  std::vector<std::string> bindings;  // what a better plan would need, or the largest term of the step
  std::vector<report::Alternative> neighbours;
  std::vector<report::PageConstant> constants;
  std::vector<std::string> trust;  // bounds and published errors
};

Explanation Explain(const ClusterPlan& plan);

// The page of --html, for the chosen layout.
report::PageInput PageOfPlan(const ClusterPlan& plan);

}  // namespace trainctl::frameworks
