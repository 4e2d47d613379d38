// The parts of making a plan that come before the search. Internal to the planner. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/host.h"
#include "plan/plan.h"
#include "planner/search.h"
#include "recipe/recipe.h"
#include "simulate/machine.h"

namespace trainctl::planner {

// A plan without a layout: the setting of its step, its machine, rates and memory limit. `measured` may be
// null. Errors as of MakePlan.
absl::StatusOr<plan::Plan> ResolvePlan(const recipe::Recipe& recipe, const cluster::Host& host,
                                       const simulate::MachineProfile* measured);

// What to search. Borrows the recipe.
Problem ProblemOf(const recipe::Recipe& recipe, const plan::Plan& plan);

}  // namespace trainctl::planner
