// What a run waits for, and for how long: every timeout of a recipe and those that follow from them.
#pragma once

#include <string>

#include "recipe/recipe.h"

namespace trainctl::cli {

// In the order in which they pass; with the field that sets each.
void PrintTimeouts(const recipe::Recipe& recipe, bool color);
// The same in a line, for a run of one machine: those that a recipe sets.
std::string SumUpTimeouts(const recipe::LaunchConfig& launch);

}  // namespace trainctl::cli
