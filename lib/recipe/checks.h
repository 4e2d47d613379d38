// What must hold between the fields of a recipe. Pure; thread safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "recipe/issues.h"
#include "recipe/recipe.h"
#include "recipe/schema.h"

namespace trainctl::recipe {

// `origin` is LoadedRecipe::origin; fields that `issues` calls bad are left out of the checks.
// What only matters to a run (its workers, its data, its length) is not checked for kPlan.
void CheckRecipe(const Recipe& recipe, const std::map<std::string, std::string>& origin, Issues& issues,
                 Purpose purpose = Purpose::kTrain);

// Values that were given (their origin is not "default") and make no difference.
std::vector<std::string> FindNotes(const Recipe& recipe, const std::map<std::string, std::string>& origin);

}  // namespace trainctl::recipe
