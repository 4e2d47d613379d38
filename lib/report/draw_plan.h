// Draws the step that a plan will run, as text for a terminal and as a trace for Perfetto. Pure functions;
// thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "model/architecture.h"
#include "plan/plan.h"

namespace trainctl::report {

struct DrawOptions {
  int width = 120;     // number of columns
  bool color = false;  // whether to use ANSI colors
};

// Draws one row per stream that has work, with time from left to right. With a pipeline, draws one row per
// class of ranks, which shows only its compute stream. Each column shows the letter of the instruction that
// takes up most of it, or a dot if the stream is idle for more than half of it. A legend and a breakdown of
// the time follow.
std::string DrawPlan(const plan::Plan& plan, const model::Architecture& spec,
                     const DrawOptions& options = {});

// Returns a trace in Chrome's Trace Event Format, for ui.perfetto.dev. It has a process per class of ranks, a
// thread per stream, and a counter of memory by category. Instructions have the same names as in the output
// of `trainctl trace`.
std::string TraceOfPlan(const plan::Plan& plan, const model::Architecture& spec, absl::string_view title);

}  // namespace trainctl::report
