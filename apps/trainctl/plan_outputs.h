// What `trainctl plan` can show of one job: a drawing in the terminal, a trace, a page. The verb itself is in
// cmd_plan.cc.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "frameworks/workload.h"
#include "report/page.h"

namespace trainctl::cli {

// Columns of the terminal at standard output; 120 where it is none.
int TerminalWidth();

// --draw: prints to standard output. `workload` is valid in all of these.
void PrintDrawing(const frameworks::Workload& workload, bool color);

// --trace OUT: EnvironmentError where it cannot be written.
absl::Status WriteTrace(const frameworks::Workload& workload, absl::string_view title,
                        const std::string& path);

// --html OUT: `page` is planner::PageOf(workload, name) with what the caller knows beside it.
absl::Status WritePage(const report::PageInput& page, const std::string& path);

}  // namespace trainctl::cli
