// A recipe and its schema as text for people. Pure; thread safe.
#pragma once

#include <set>
#include <string>

#include "recipe/load.h"

namespace trainctl::recipe {

// The resolved recipe as TOML, each value with where it came from as a comment. It is itself a
// recipe that resolves to the same values, wherever it is read.
std::string ToToml(const LoadedRecipe& loaded);
// Of its fields those at `paths` alone ("train.steps", "data.train[0].files").
std::string ToToml(const LoadedRecipe& loaded, const std::set<std::string>& paths);

// The same as one JSON object: {"schema": "trainctl.recipe-show.v1", "recipe": {...}, "origin": {...},
// "notes": [...]}.
std::string ToShowJson(const LoadedRecipe& loaded);

// docs/reference/recipe.md, from the schema alone.
std::string ReferencePage();

}  // namespace trainctl::recipe
