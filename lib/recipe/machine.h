// The machine that a recipe speaks of. Pure; thread safe.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cluster/host.h"
#include "cluster/machine.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Of a device that the catalogue names. UsageError: an unknown device or node (a loaded recipe has neither).
absl::StatusOr<std::shared_ptr<const cluster::Machine>> MachineOf(const ClusterConfig& cluster);

// The same; with cluster.device = "cuda" of the device that `host` has. Null: the catalogue does not know
// that one.
absl::StatusOr<std::shared_ptr<const cluster::Machine>> MachineFor(ClusterConfig cluster,
                                                                   const cluster::Host& host);

}  // namespace trainctl::recipe
