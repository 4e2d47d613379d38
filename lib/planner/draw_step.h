// The passes of a step in text, ranks downwards and time to the right, as the papers draw schedules but with
// the job's own times. Pure; thread safe.
#pragma once

#include <string>

#include "pricing/workload.h"

namespace trainctl::planner {

struct DrawStepOptions {
  int width = 120;     // columns
  bool color = false;  // ANSI
};

// A line on the schedule, one line per rank, a legend, and what a rank does all the time. A cell is about
// the shortest pass; a step that is wider than the text is cut, and the text says where.
// `workload` is valid (pricing::Validate).
std::string DrawStep(const pricing::Workload& workload, const DrawStepOptions& options = {});

}  // namespace trainctl::planner
