#include "apps/trainctl/plan_outputs.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/files.h"
#include "planner/draw_step.h"
#include "planner/trace.h"
#include "pricing/timeline.h"

namespace trainctl::cli {

int TerminalWidth() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return 120;
  return std::max<int>(size.ws_col, 40);
}

void PrintDrawing(const pricing::Workload& workload, bool color) {
  const std::string text = planner::DrawStep(workload, {.width = TerminalWidth(), .color = color});
  std::fputs(text.c_str(), stdout);
}

absl::Status WriteTrace(const pricing::Workload& workload, absl::string_view title, const std::string& path) {
  return WriteFileAtomic(path, planner::TraceJson(pricing::BuildTimeline(workload), title));
}

absl::Status WritePage(const planner::PageInput& page, const std::string& path) {
  return WriteFileAtomic(path, planner::PlanPage(page));
}

}  // namespace trainctl::cli
