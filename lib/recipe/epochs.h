// Converts a run's length from epochs to steps.
#pragma once

#include "absl/status/status.h"
#include "recipe/access.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Replaces train.epochs with the equivalent train.steps by counting the recipe's data. The rest of the recipe
// must be valid. Does nothing if train.epochs is empty. Returns the errors of Access::count_epoch_tokens, or
// UsageError if that function is null; train.epochs then remains set.
absl::Status ResolveEpochs(const Access& access, Recipe& recipe);

}  // namespace trainctl::recipe
