// The Pareto front of step time and memory. Internal to the planner.
#pragma once

#include <vector>

#include "planner/explore.h"
#include "planner/explore_axes.h"
#include "planner/explore_finder.h"

namespace trainctl::planner {

// Fastest first: each point is the fastest (the simplest within a hair) of what needs at least the share
// `options.pareto_step` less memory than the point before it. `question` gives the limits.
std::vector<Choice> MemoryFront(const Axes& axes, const Question& question, const ExploreOptions& options,
                                SearchCounts& counts);
// The same from all prices.
std::vector<Choice> MemoryFrontOfAll(const Axes& axes, const Question& question,
                                     const ExploreOptions& options, SearchCounts& counts);

}  // namespace trainctl::planner
