// Makes a plan for trainctl's trainer. Resolves the settings that a recipe leaves open, compares all layouts
// that the builder supports, and plans the step of the best one. The commands `plan` and `launch` both call
// this code, so they always agree. Estimates for other trainers are in lib/frameworks. Thread-safe. All
// functions except MakePlanFor are pure.
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

// Compares all layouts that the recipe allows, and returns the plan of the best one. `host` is the machine on
// which the workers run; all nodes are assumed to be like it. `measured` is the profile of `host`. If it is
// null, times on a CPU are orders of magnitude, and those on a device come from published rates. If the
// recipe names a device of the catalogue, nothing measured on this machine is used, so the plan is the same
// on every machine. Errors:
//
//   UsageError        the recipe violates constraints, which are all listed (recipe/checks.h), or its
//                     memory limit exceeds the memory of the device
//   EnvironmentError  the memory of the device is unknown, because no driver reports a device
//   InfeasibleError   no layout fits; lists the memory of each category and suggests the nearest recipe that
//                     fits. Also returned if the workers' programs leave no memory for tensors, or if no
//                     micro-batch size suits the pipeline's order
//   InternalError     schedule::Check rejects the chosen step, which is a bug in trainctl
absl::StatusOr<plan::Plan> MakePlan(const recipe::Recipe& recipe, const cluster::Host& host,
                                    const simulate::MachineProfile* measured = nullptr);
// Loads the profile of `host`, if there is one (simulate/machine.h), and calls MakePlan with it. Also returns
// the errors of simulate::LoadMachineProfile, and adds its notes to the plan's.
absl::StatusOr<plan::Plan> MakePlanFor(const recipe::Recipe& recipe, const cluster::Host& host);

// Returns `recipe` with each "auto" that the plan resolved replaced by the plan's value. Planning the result
// gives the same step.
recipe::Recipe Frozen(const recipe::Recipe& recipe, const plan::Plan& plan);

// Returns the same as TOML, in addition to the settings that the recipe's author stated.
std::string FixedRecipe(const recipe::LoadedRecipe& loaded, const plan::Plan& plan);

}  // namespace trainctl::planner
