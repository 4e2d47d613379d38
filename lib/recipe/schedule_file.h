// parallel.schedule_file: a pipeline's order that is read once, with the recipe. Pure but for `Access`.
#pragma once

#include "absl/status/status.h"
#include "recipe/layers.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Reads the file, if one is named, into parallel.passes, and forgets its name: what a run keeps is what it
// runs. An error: it cannot be read, or is none (with line and column).
absl::Status ReadScheduleFile(const Access& access, Recipe& recipe);

}  // namespace trainctl::recipe
