// The order of a pipeline as the papers draw it: ranks downwards, time to the right. Pure.
#pragma once

#include <string>

#include "schedule/step.h"
#include "simulate/play.h"

namespace trainctl::report {

struct DrawOrderOptions {
  int width = 120;     // columns of text at most; a line that goes on ends in '>'
  bool color = false;  // ANSI: passes by background colour and micro-batches by their number alone
  double cell_s = 0;   // time of one cell; 0: the shortest pass
};

// One line per rank, then a legend. A cell names a pass by its letter and micro-batch ("F3", "I0");
// one that takes several cells goes on in dashes; idle time is dots. Small letters: a stage of an
// odd round over the ranks (the way back of a V), or the second copy of the model. Of an order whose stages
// are one block each (schedule::ExpandOrder).
std::string DrawOrder(const schedule::Step& step, const simulate::Played& played,
                      const DrawOrderOptions& options = {});

// The pass that a compute instruction is drawn as.
schedule::PipelineOp PassOf(schedule::Op op);

}  // namespace trainctl::report
