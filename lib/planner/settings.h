// Settings of a recipe that lead to a layout, as text for people. Internal to the planner. Pure.
#pragma once

#include <string>

#include "layout/layout.h"

namespace trainctl::planner {

struct Rewritten {
  std::string settings;  // "parallel.zero_stage = 2, train.micro_batch = 1"; empty if nothing has to change
  layout::Request request;  // what the recipe asks for once they are written
};

// What to write into a recipe that asks for `asked` so that `layout` satisfies it. `relaxed` is `asked`
// without what may be changed. What the recipe leaves open stays open.
Rewritten Rewrite(const layout::Request& asked, const layout::Request& relaxed, const layout::Layout& layout);

}  // namespace trainctl::planner
