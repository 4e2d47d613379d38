// Finds what is worth knowing about a valid recipe. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "recipe/origins.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Returns notes about a valid recipe, for example that an explicitly set value has no effect, that the
// weights are random although model.from provides some, or that training steps change nothing. A value counts
// as explicitly set if its origin is not "default".
std::vector<std::string> FindNotes(const Recipe& recipe, const Origins& origins);

}  // namespace trainctl::recipe
