// The passes of a step in text, ranks downwards and time to the right, as the papers draw schedules but with
// the job's own times. Pure; thread safe.
#pragma once

#include <string>

#include "frameworks/workload.h"

namespace trainctl::frameworks {

struct DrawStepOptions {
  int width = 120;     // columns
  bool color = false;  // ANSI
};

// A line on the schedule; where the step is wider than the text, all of it with a letter a column (the pass
// that takes most of it); then pass by pass with their micro-batches, cut where the text ends; a legend, and
// where the time goes. Small letters as in pipeline_draw.h. `workload` is valid (Validate).
std::string DrawStep(const Workload& workload, const DrawStepOptions& options = {});

}  // namespace trainctl::frameworks
