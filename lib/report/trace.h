// Formats a step as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing, with a process per pipeline
// rank, a thread for each of the rank's streams, and a counter of its memory. Pure functions; thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "report/step_picture.h"

namespace trainctl::report {

// Returns the trace in the "JSON Object Format" of Chrome's Trace Event Format. Times are in microseconds
// with three decimals. A thread's events are in order and do not overlap. `title` becomes part of the trace's
// metadata and may contain any text.
std::string TraceJson(const StepPicture& step, absl::string_view title);

}  // namespace trainctl::report
