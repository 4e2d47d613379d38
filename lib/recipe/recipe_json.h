// Reads and writes a resolved recipe as JSON. A run folder stores this form, and workers and `resume` read
// it. Every value is explicit, and reading restores exactly the recipe that was written. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Returns a JSON object with "schema": "trainctl.recipe.v1", indented by two spaces and terminated by a
// newline. Equal recipes produce identical bytes.
std::string ToJson(const Recipe& recipe);

// Parses the output of ToJson. `what` names the text in error messages. Returns BadDataError if the text is
// damaged or has a newer schema, an unknown field, or a value out of range. A missing field takes its default
// if it was added to the schema in a later version.
absl::StatusOr<Recipe> RecipeFromJson(absl::string_view json, absl::string_view what);

}  // namespace trainctl::recipe
