// The resolved recipe as JSON: what a run folder stores and workers and `resume` read. Every value is
// explicit, and reading gives back exactly what was written. Thread safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// One object with "schema": "trainctl.recipe.v1"; indented by two spaces, ends with a line break.
// The same recipe gives the same bytes.
std::string ToJson(const Recipe& recipe);

// `what` names the text in errors (BadDataError): damaged text, a newer schema, an unknown field, a
// value out of range. A field that the text lacks (added to the schema later) takes its default.
absl::StatusOr<Recipe> RecipeFromJson(absl::string_view json, absl::string_view what);

}  // namespace trainctl::recipe
