// The JSON that `plan --json` and `launch --dry-run --json` print: plan.json and the estimates of each
// candidate.
#pragma once

#include "base/json_fwd.h"
#include "plan/plan.h"
#include "recipe/recipe.h"

namespace trainctl::cli {

// Returns plan.json with these fields in each of "candidates" and, for the chosen one, in "chosen":
// "estimated_step_seconds",
// "tokens_per_second" (of all workers), "mfu", "days" and "cost" (null if they are unknown), "peak_bytes" and
// "memory_by_category".
Json PlanWithEstimates(const plan::Plan& plan, const recipe::Recipe& recipe);

}  // namespace trainctl::cli
