// Determines the model of a recipe: the preset, the config.json of a folder, or a family, with the dimensions
// that the recipe sets itself. Reads files only through `Access`.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "recipe/access.h"
#include "recipe/issues.h"
#include "recipe/layers.h"
#include "recipe/load.h"

namespace trainctl::recipe {

// Sets loaded.recipe.model from `draft`, and the origin of sizes that follow from others. Returns the origin
// of all dimensions that no layer sets. Adds mistakes to `issues` and marks "model.spec" as bad if the model
// is not known. `what` names the recipe.
std::string ResolveModel(const Draft& draft, const Access& access, absl::string_view what, Issues& issues,
                         LoadedRecipe& loaded);

}  // namespace trainctl::recipe
