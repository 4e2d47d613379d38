// Internal to the planner: the parts of planning that precede the search. Pure functions; thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/host.h"
#include "plan/plan.h"
#include "planner/search.h"
#include "recipe/recipe.h"
#include "simulate/machine.h"

namespace trainctl::planner {

// Returns a plan without a layout. It has the setting of its step, its machine, rates and memory limit.
// `measured` may be null. Returns the errors of MakePlan, except those of the search and of schedule::Check.
absl::StatusOr<plan::Plan> ResolvePlan(const recipe::Recipe& recipe, const cluster::Host& host,
                                       const simulate::MachineProfile* measured);

// Returns the problem for Search (search.h). `recipe` must outlive the result.
Problem ProblemOf(const recipe::Recipe& recipe, const plan::Plan& plan);

}  // namespace trainctl::planner
