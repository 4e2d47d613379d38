// Draws the order of a pipeline schedule as papers do, with one row per rank and time from left to right.
// Pure functions; thread-safe.
#pragma once

#include <string>

#include "schedule/step.h"
#include "simulate/play.h"

namespace trainctl::report {

struct DrawOrderOptions {
  // Maximum number of columns; a longer line is cut off with '>'.
  int width = 120;
  // Whether to use ANSI colors. The background color then identifies the pass, and cells show only the
  // micro-batch.
  bool color = false;
  // Time of one cell, in seconds; if 0, the time of the shortest pass.
  double cell_s = 0;
};

// Draws one line per rank, followed by a legend. A cell names a pass by its letter and micro-batch ("F3",
// "I0"). A pass that spans several cells continues as dashes, and idle time is shown as dots. Lower-case
// letters mark a stage on an odd round over the ranks (the way back in a V schedule) or the second copy of
// the model. Requires an order in which each stage has one block (see schedule::ExpandOrder).
std::string DrawOrder(const schedule::Step& step, const simulate::Played& played,
                      const DrawOrderOptions& options = {});

// Returns the pass that represents a compute instruction in the drawing.
schedule::PipelineOp PassOf(schedule::Op op);

}  // namespace trainctl::report
