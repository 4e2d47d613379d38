// From a recipe to the space that is searched, and back to the nearest recipe that fits. Internal to the
// planning for clusters. Pure; thread safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frameworks/cluster_plan.h"

namespace trainctl::frameworks {

// What the recipe fixes is fixed, the rest is free within what the framework has (framework_ways.h). What
// each "auto" beyond the degrees became is added to `notes`.
absl::StatusOr<SearchSpace> SpaceOf(const recipe::LoadedRecipe& loaded, const PlannedModel& model,
                                    const cluster::Machine& machine, std::vector<std::string>& notes);
// Of parallel.stage_layers: empty, or one number for each of pp x virtual_stages stages, which `space` then
// fixes. UsageError where they do not add up.
absl::StatusOr<std::vector<int64_t>> StageLayersOf(const recipe::LoadedRecipe& loaded, SearchSpace& space);
absl::StatusOr<Goal> GoalOf(const recipe::LoadedRecipe& loaded);
std::optional<Failures> FailuresOf(const recipe::LoadedRecipe& loaded);

// Fills the axes of `space` that are free with what its framework has.
void LimitToFramework(SearchSpace& space);

// The single setting that could be taken back, else the number of nodes, with which the search finds
// something: "leave parallel.tp at auto: ...".
std::string NearestChange(const recipe::LoadedRecipe& loaded, const ClusterPlan& plan);

}  // namespace trainctl::frameworks
