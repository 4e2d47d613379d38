// Checks the relations between a recipe's fields. Pure; thread-safe.
#pragma once

#include "recipe/issues.h"
#include "recipe/origins.h"
#include "recipe/recipe.h"
#include "recipe/schema.h"

namespace trainctl::recipe {

// Checks the relations between the fields of `recipe` and adds each violation to `issues`. Skips fields that
// `issues` marks as bad. `origins` is LoadedRecipe::origin.
//
// Settings that a run requires but a plan does not (its length, its data, and a launcher if it spans several
// machines) are reported in `missing`. If the recipe is for a run, pass the same object as `issues` and
// `missing`. kWhatIf skips the checks that apply only to our own trainer.
void CheckRecipe(const Recipe& recipe, const Origins& origins, Issues& issues, Issues& missing,
                 Purpose purpose = Purpose::kPlan);

}  // namespace trainctl::recipe
