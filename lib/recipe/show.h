// Renders a recipe and its schema in human-readable form. Pure; thread-safe.
#pragma once

#include <set>
#include <string>

#include "recipe/load.h"

namespace trainctl::recipe {

// Returns the resolved recipe as TOML, with a comment that gives the origin of each value. The result is
// itself a recipe and resolves to the same values in any folder.
std::string ToToml(const LoadedRecipe& loaded);
// Like above, but includes only the fields at `paths`, such as "train.steps" or "data.train[0].files".
std::string ToToml(const LoadedRecipe& loaded, const std::set<std::string>& paths);

// Returns the resolved recipe as a JSON object: {"schema": "trainctl.recipe-show.v1", "recipe": {...},
// "origin": {...}, "notes": [...]}.
std::string ToShowJson(const LoadedRecipe& loaded);

// Returns the contents of docs/reference/recipe.md, generated from the schema.
std::string ReferencePage();

}  // namespace trainctl::recipe
