// The layouts of a plan of our own trainer, side by side.
#pragma once

#include "plan/plan.h"
#include "recipe/recipe.h"

namespace trainctl::cli {

struct PlanTableOptions {
  bool all = false;  // every candidate, not only the best of each family
  bool color = false;
};

// Families are DDP, ZeRO-1, ZeRO-2, ZeRO-3, HSDP, tp, pp and tp x pp. Times are left out if the plan knows
// no rates of its device.
void PrintPlanTable(const plan::Plan& plan, const recipe::Recipe& recipe, const PlanTableOptions& options);

}  // namespace trainctl::cli
