// Internal to the planner: describes the settings of a recipe that lead to a layout. Pure functions;
// thread-safe.
#pragma once

#include <string>

#include "layout/layout.h"

namespace trainctl::planner {

struct Rewritten {
  // Text such as "parallel.zero_stage = 2, train.micro_batch = 1". Empty if nothing has to change.
  std::string settings;
  layout::Request request;  // request of the recipe after the change
};

// Returns the changes of a recipe after which `layout` satisfies its request. `asked` is the recipe's
// request. `relaxed` is the request without the settings that may change, from which `layout` was found.
// Settings that the recipe leaves open stay open.
Rewritten Rewrite(const layout::Request& asked, const layout::Request& relaxed, const layout::Layout& layout);

}  // namespace trainctl::planner
