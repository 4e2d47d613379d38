// Makes a plan for our own trainer: resolves what a recipe leaves open, weighs every layout that the builder
// can build, and keeps the step of the best. `plan` and `launch` both come here, so they cannot disagree.
// What-ifs of other trainers are elsewhere (lib/frameworks). Pure; thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(plan::Plan plan, planner::MakePlan(recipe, host));
//   plan::PlannedStep step = plan::BuildStep(plan, recipe.model.spec);
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cluster/host.h"
#include "plan/plan.h"
#include "recipe/load.h"
#include "recipe/recipe.h"
#include "simulate/machine.h"

namespace trainctl::planner {

// Weighs every layout that the recipe allows. `host` is the machine that the workers run on (all nodes are
// taken to be alike), `measured` its profile; null: times are orders of magnitude. Of a device that the
// recipe names only the catalogue is read, so that the plan is the same on every machine. UsageError: every
// constraint that is violated, in the words of recipe/checks.h. InfeasibleError: nothing fits; says what each
// category needs and the nearest recipe that would. InternalError: the chosen step is not proven correct
// (schedule::Check), which is our mistake.
absl::StatusOr<plan::Plan> MakePlan(const recipe::Recipe& recipe, const cluster::Host& host,
                                    const simulate::MachineProfile* measured = nullptr);
// The same with what was measured of `host`, if anything was (simulate/machine.h).
absl::StatusOr<plan::Plan> MakePlanFor(const recipe::Recipe& recipe, const cluster::Host& host);

// `recipe` with every "auto" that the plan resolved stated as the plan has it: it plans to the same step.
recipe::Recipe Frozen(const recipe::Recipe& recipe, const plan::Plan& plan);

// The same as TOML, next to what its author has stated.
std::string FixedRecipe(const recipe::LoadedRecipe& loaded, const plan::Plan& plan);

}  // namespace trainctl::planner
