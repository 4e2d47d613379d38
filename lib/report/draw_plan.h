// The step that a plan will run, drawn: as text for a terminal, and as a trace for Perfetto. Pure; thread
// safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "model/model_spec.h"
#include "plan/plan.h"

namespace trainctl::report {

struct DrawOptions {
  int width = 120;     // columns
  bool color = false;  // ANSI
};

// A row for each stream, time to the right: in each column the letter of what takes most of it, a dot where
// the stream is idle; then a legend and where the time goes.
std::string DrawPlan(const plan::Plan& plan, const model::ModelSpec& spec, const DrawOptions& options = {});

// Chrome's Trace Event Format, for ui.perfetto.dev: one process for the class of ranks, a thread for each
// stream, a counter of memory by category. Instructions have the names that `trainctl trace` shows of the
// run.
std::string TraceOfPlan(const plan::Plan& plan, const model::ModelSpec& spec, absl::string_view title);

}  // namespace trainctl::report
