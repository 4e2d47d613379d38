// Which waits of a launch must be longer than which others. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// How long a launch waits for a machine that is not ready, or that it has lost, before it ends.
absl::Duration NodeTimeout(const LaunchConfig& launch);

struct WrongOrder {
  std::vector<std::string> paths;  // of the fields, the one that is too short or too long first
  std::string message;             // which, both values, why, and what to set
};
// One for each order that the backend needs and the values break; the launcher of one machine needs none.
std::vector<WrongOrder> FindWrongOrders(const LaunchConfig& launch);

}  // namespace trainctl::recipe
