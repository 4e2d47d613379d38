// The page (page.h) of a plan of our own trainer: the step that will run, block by block. Pure; thread safe.
#pragma once

#include "plan/plan.h"
#include "recipe/recipe.h"
#include "report/page.h"

namespace trainctl::report {

PageInput PageOfPlan(const plan::Plan& plan, const recipe::Recipe& recipe);

}  // namespace trainctl::report
