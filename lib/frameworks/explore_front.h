// The Pareto front of step time and memory. Internal to the planner.
#pragma once

#include <vector>

#include "frameworks/explore.h"
#include "frameworks/explore_axes.h"
#include "frameworks/explore_finder.h"

namespace trainctl::frameworks {

// Fastest first: each point is the fastest (the simplest within a hair) of what needs at least the share
// `options.pareto_step` less memory than the point before it. `question` gives the limits.
std::vector<Choice> MemoryFront(const Axes& axes, const Question& question, const ExploreOptions& options,
                                SearchCounts& counts, LayerTermsTable& terms);
// The same from all prices.
std::vector<Choice> MemoryFrontOfAll(const Axes& axes, const Question& question,
                                     const ExploreOptions& options, SearchCounts& counts);

}  // namespace trainctl::frameworks
