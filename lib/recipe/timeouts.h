// Checks that the timeouts of a launch are consistent with each other. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Returns how long a launch waits for a node that is not ready or has been lost before the launch fails.
absl::Duration NodeTimeout(const LaunchConfig& launch);

struct WrongOrder {
  std::vector<std::string> paths;  // fields involved, the incorrect one first
  std::string message;             // field at fault, both values, the reason, and a value that works
};
// Returns the ordering rules of the recipe's backend that the timeouts violate. The local backend has no such
// rules.
std::vector<WrongOrder> FindWrongOrders(const LaunchConfig& launch);

}  // namespace trainctl::recipe
