// The machine that a run is planned for: what cluster::DetectHost tells and, where the recipe wants a device,
// what its driver shows.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/host.h"
#include "recipe/recipe.h"

namespace trainctl::cli {

absl::StatusOr<cluster::Host> HostOfRun(const recipe::Recipe& recipe);

// Before a run is started: whether the device that the recipe wants is here, as far as a driver tells. With a
// plugin of the caller's choice (TRAINCTL_DEVICE_PLUGIN) its workers ask that. EnvironmentError says what is
// missing.
absl::Status CheckDeviceIsHere(const recipe::Recipe& recipe, const cluster::Host& host);

}  // namespace trainctl::cli
