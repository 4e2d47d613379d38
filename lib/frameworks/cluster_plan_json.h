// Parts of `trainctl plan --json` for a cluster. Brings the JSON library in: for .cc files that write JSON.
#pragma once

#include "base/json_fwd.h"
#include "frameworks/cluster_plan.h"

namespace trainctl::frameworks {

Json PlanToJsonObject(const ClusterPlan& plan);  // "schema": kClusterPlanSchema
Json ChoiceToJson(const ClusterPlan& plan, const Choice& choice);

}  // namespace trainctl::frameworks
