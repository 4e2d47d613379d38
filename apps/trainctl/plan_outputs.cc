#include "apps/trainctl/plan_outputs.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "frameworks/draw_step.h"
#include "frameworks/timeline.h"
#include "report/trace.h"

namespace trainctl::cli {

int TerminalWidth() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return 120;
  return std::max<int>(size.ws_col, 40);
}

void PrintDrawing(const frameworks::Workload& workload, bool color) {
  const std::string text = frameworks::DrawStep(workload, {.width = TerminalWidth(), .color = color});
  std::fputs(text.c_str(), stdout);
}

std::string TraceOf(const frameworks::Workload& workload, absl::string_view title) {
  return report::TraceJson(frameworks::PictureOf(frameworks::BuildTimeline(workload)), title);
}

}  // namespace trainctl::cli
