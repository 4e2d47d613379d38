// Internal to the planner: suggests how to change a recipe that does not fit. Pure functions; thread-safe.
#pragma once

#include <string>

#include "planner/search.h"

namespace trainctl::planner {

// Returns text for an error message that describes the nearest recipe that fits. First tries to free the
// micro-batch, the recomputation, the ZeRO stage and data parallelism, and the degrees of the pipeline and of
// tensor parallelism, in this order of preference. Then tries more workers. If nothing fits, the text gives
// the least memory that was found and other remedies.
std::string NearestThatFits(const Problem& problem, const SearchPasses& passes = {});

}  // namespace trainctl::planner
