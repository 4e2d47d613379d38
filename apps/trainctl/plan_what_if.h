// `trainctl plan` as a what-if: another trainer's run as a table, as JSON, as a recipe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/plan_options.h"
#include "frameworks/cluster_plan.h"
#include "recipe/load.h"

namespace trainctl::cli {

// Keeps `keep` layouts and reads the profile.
absl::StatusOr<frameworks::ClusterPlanOptions> SearchOptionsOf(const PlanOptions& options, int keep);

absl::StatusOr<ExitCode> PlanWhatIf(const recipe::LoadedRecipe& loaded, const PlanOptions& options,
                                    const Output& output);

}  // namespace trainctl::cli
