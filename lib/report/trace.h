// A step as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing: a process for each pipeline rank,
// a thread for each of its streams, and a counter of its memory. Pure; thread safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "report/step_picture.h"

namespace trainctl::report {

// The "JSON Object Format" of Chrome's Trace Event Format. Times are microseconds with three decimals. Within
// a thread events are in order and do not overlap. `title` is told in the trace's metadata, whatever it
// contains.
std::string TraceJson(const StepPicture& step, absl::string_view title);

}  // namespace trainctl::report
