// What to change in a recipe that does not fit. Internal to the planner. Pure.
#pragma once

#include <string>

#include "planner/search.h"

namespace trainctl::planner {

// The nearest recipe that fits, as text for an error; changes the fewest constraints first.
std::string NearestThatFits(const Problem& problem, const SearchPasses& passes = {});

}  // namespace trainctl::planner
