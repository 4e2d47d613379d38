// From a recipe to the space that is searched, and back to the nearest recipe that fits. Internal to the
// planning for clusters. Pure; thread safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cluster_plan.h"

namespace trainctl::planner {

// What the recipe fixes is fixed, the rest is free. What each "auto" beyond the degrees became is added to
// `notes`.
absl::StatusOr<SearchSpace> SpaceOf(const recipe::LoadedRecipe& loaded, const PlannedModel& model,
                                    const Machine& machine, std::vector<std::string>& notes);
absl::StatusOr<Goal> GoalOf(const recipe::LoadedRecipe& loaded);
std::optional<Failures> FailuresOf(const recipe::LoadedRecipe& loaded);

// The single setting that could be taken back, else the number of nodes, with which the search finds
// something: "leave parallel.tp at auto: ...".
std::string NearestChange(const recipe::LoadedRecipe& loaded, const ClusterPlan& plan);

}  // namespace trainctl::planner
