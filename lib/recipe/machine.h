// Looks up the machine described by a recipe. Pure; thread-safe.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cluster/host.h"
#include "cluster/machine.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Returns the catalogue's machine for the cluster's device. Returns UsageError if the device or node type is
// unknown, which cannot happen for a loaded recipe.
absl::StatusOr<std::shared_ptr<const cluster::Machine>> MachineOf(const ClusterConfig& cluster);

// Like MachineOf, but takes cluster.device = "cuda" to mean the device of `host`. Returns null if that device
// is not in the catalogue.
absl::StatusOr<std::shared_ptr<const cluster::Machine>> MachineFor(ClusterConfig cluster,
                                                                   const cluster::Host& host);

}  // namespace trainctl::recipe
