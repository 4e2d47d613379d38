// The page (page.h) of a plan of our own trainer: the step that will run, block by block. Pure; thread safe.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "recipe/recipe.h"
#include "report/page.h"

namespace trainctl::report {

// What the plan's times are made of: seconds per unit of a CPU, or what the catalogue says of a machine.
std::vector<PageConstant> RatesOf(const plan::Plan& plan);

PageInput PageOfPlan(const plan::Plan& plan, const recipe::Recipe& recipe);

}  // namespace trainctl::report
