// What `trainctl plan` can show of one job: a drawing in the terminal, a trace, a page. The verb itself is in
// cmd_plan.cc.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "frameworks/workload.h"

namespace trainctl::cli {

// Columns of the terminal at standard output; 120 where it is none.
int TerminalWidth();

// --draw: prints to standard output. `workload` is valid in all of these.
void PrintDrawing(const frameworks::Workload& workload, bool color);

// --trace: what is written.
std::string TraceOf(const frameworks::Workload& workload, absl::string_view title);

}  // namespace trainctl::cli
