// Reads parallel.schedule_file, a pipeline order that is loaded once, together with the recipe. Pure except
// for `Access`.
#pragma once

#include "absl/status/status.h"
#include "recipe/access.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// If the recipe names a schedule file, loads it into parallel.passes and clears the name, so that the run
// stores the order itself. Returns an error if the file cannot be read or is not a valid pipeline order; the
// latter includes the line and column.
absl::Status ReadScheduleFile(const Access& access, Recipe& recipe);

}  // namespace trainctl::recipe
