// The machine that a run is planned for: what cluster::DetectHost tells and, where the recipe wants a device,
// what its driver shows.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/host.h"
#include "recipe/recipe.h"

namespace trainctl::cli {

absl::StatusOr<cluster::Host> HostOfRun(const recipe::Recipe& recipe);

}  // namespace trainctl::cli
