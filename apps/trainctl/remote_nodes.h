// The nodes of a run on several machines, and how their agents are started: from the recipe, and for Slurm
// and Kubernetes from the allocation or the job that this process is in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/job.h"
#include "recipe/recipe.h"

namespace trainctl::cli {

// nullopt: the run is of this machine alone (launch.backend = "local"). UsageError, EnvironmentError: there
// are not enough nodes, or there is no allocation, or this is no pod that launches.
absl::StatusOr<std::optional<launcher::RemoteNodes>> FindRemoteNodes(const recipe::Recipe& recipe);

// The commands that start agents, as a person would type them; empty for a run of this machine alone.
std::vector<std::string> StartCommands(const launcher::RemoteNodes& remote);

}  // namespace trainctl::cli
