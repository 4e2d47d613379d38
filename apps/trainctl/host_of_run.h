// The machine that a run is planned for: what cluster::DetectHost reports and, if the recipe wants a device,
// what its driver and CUDA_VISIBLE_DEVICES show.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/host.h"
#include "recipe/recipe.h"

namespace trainctl::cli {

// Whether TRAINCTL_TEST_SHARED_DEVICES allows more workers than devices.
bool SharesDevices();

// EnvironmentError if the recipe wants this machine's GPUs and CUDA_VISIBLE_DEVICES cannot be followed.
absl::StatusOr<cluster::Host> HostOfRun(const recipe::Recipe& recipe);

// For a recipe that uses GPUs of this machine: an EnvironmentError if CUDA_VISIBLE_DEVICES hides so many that
// fewer than cluster.devices_per_node are left. Launches on other machines are not checked.
absl::Status CheckEnoughAreVisible(const recipe::Recipe& recipe, const cluster::Host& host);

// Before a run is started: whether the device that the recipe wants is here, as far as a driver tells. With a
// plugin of the caller's choice (TRAINCTL_DEVICE_PLUGIN) its workers ask that. EnvironmentError says what is
// missing.
absl::Status CheckDeviceIsHere(const recipe::Recipe& recipe, const cluster::Host& host);

}  // namespace trainctl::cli
