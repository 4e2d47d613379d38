// Settings of a recipe that lead to a layout, as text for people. Internal to the planner. Pure.
#pragma once

#include <string>

#include "layout/layout.h"

namespace trainctl::planner {

// What to write into a recipe that asks for `asked` so that `layout` satisfies it:
// "parallel.zero_stage = 2, train.micro_batch = 1". `relaxed` is `asked` without what may be changed. Empty
// if nothing needs to be written.
std::string SettingsOf(const layout::Request& asked, const layout::Request& relaxed,
                       const layout::Layout& layout);

}  // namespace trainctl::planner
