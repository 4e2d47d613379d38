// What a run waits for, and for how long: every timeout of a recipe and those that follow from them.
#pragma once

#include "recipe/recipe.h"

namespace trainctl::cli {

// In the order in which they pass; with the field that sets each.
void PrintTimeouts(const recipe::Recipe& recipe, bool color);

}  // namespace trainctl::cli
