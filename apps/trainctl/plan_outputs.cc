#include "apps/trainctl/plan_outputs.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "planner/draw_step.h"
#include "planner/page_plan.h"
#include "planner/trace.h"
#include "pricing/timeline.h"

namespace trainctl::cli {

int TerminalWidth() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return 120;
  }
  return std::max<int>(size.ws_col, 40);
}

absl::Status ShowPlan(const planner::ClusterPlan& plan, const std::vector<std::string>& recipe_notes,
                      const PlanShows& shows, bool color) {
  const pricing::Workload& workload = plan.chosen.workload;
  if (shows.draw) {
    const std::string text = planner::DrawStep(workload, {.width = TerminalWidth(), .color = color});
    std::printf("\n%s", text.c_str());
  }
  if (!shows.trace.empty()) {
    const std::string title = absl::StrCat(plan.model.name, ": ", planner::DescribeLayout(workload));
    TRAINCTL_RETURN_IF_ERROR(
        WriteFileAtomic(shows.trace, planner::TraceJson(pricing::BuildTimeline(workload), title)));
  }
  if (shows.html.empty()) return absl::OkStatus();
  return WriteFileAtomic(shows.html, planner::PlanPage(planner::PageOfPlan(plan, recipe_notes)));
}

}  // namespace trainctl::cli
