// plan.json with what people compare: what `plan --json` and `launch --dry-run --json` print.
#pragma once

#include "base/json.h"
#include "plan/plan.h"
#include "recipe/recipe.h"

namespace trainctl::cli {

// Adds to each of "candidates", and to "chosen", which is the chosen one's alone: "estimated_step_seconds",
// "tokens_per_second" (of all workers), "mfu", "days" and "cost" (null if they are unknown), "peak_bytes" and
// "memory_by_category".
Json PlanWithEstimates(const plan::Plan& plan, const recipe::Recipe& recipe);

}  // namespace trainctl::cli
