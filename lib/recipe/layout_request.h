// Converts a recipe to the layout that it asks for. Pure; thread-safe.
#pragma once

#include "layout/layout.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Returns the layout constraints stated in the recipe. layout::FindViolations checks a layout against them.
// The request refers to the recipe's model.
layout::Request LayoutRequest(const Recipe& recipe);

}  // namespace trainctl::recipe
