// The world as a recipe is loaded from it: files, environment, and the devices of this machine.
#pragma once

#include <string>
#include <vector>

#include "recipe/load.h"

namespace trainctl::cli {

recipe::Access MachineAccess();

// The same for a plan, which needs no data: variables may be unset. A sentence for each of them is added to
// `missing`, which must outlive the access.
recipe::Access PlanAccess(std::vector<std::string>* missing);

// `access` that adds what it reads, and the data files that it finds, to `read`, which must outlive it.
recipe::Access Recording(recipe::Access access, std::vector<std::string>* read);

}  // namespace trainctl::cli
