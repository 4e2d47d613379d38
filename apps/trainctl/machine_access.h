// The world as a recipe is loaded from it: files, environment, and the devices of this machine.
#pragma once

#include "recipe/load.h"

namespace trainctl::cli {

recipe::Access MachineAccess();

}  // namespace trainctl::cli
