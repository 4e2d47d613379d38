// Builds the page (page.h) for a plan of trainctl's trainer, which shows the step that will run, block by
// block. Pure functions; thread-safe.
//
//   WriteFileAtomic("plan.html", PlanPage(PageOfPlan(plan, recipe)));
#pragma once

#include <vector>

#include "plan/plan.h"
#include "recipe/recipe.h"
#include "report/page.h"

namespace trainctl::report {

// Returns the rates behind the plan's times: a CPU's seconds per unit of work, or the catalogue's data about
// a machine.
std::vector<PageConstant> RatesOf(const plan::Plan& plan);

// Returns the content of the page. `plan` must be the plan of `recipe`.
PageInput PageOfPlan(const plan::Plan& plan, const recipe::Recipe& recipe);

}  // namespace trainctl::report
