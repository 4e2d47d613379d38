// Renders a plan as a self-contained HTML page: the step's timeline, memory over time, breakdowns of memory
// and time, the alternatives, and the source of each constant. The page loads nothing from any server, and
// all texts are escaped. Pure functions; thread-safe.
//
//   report::PageInput input;
//   input.title = "GPT-3 175B"; input.step = ...; input.pareto = ...;
//   WriteFileAtomic("plan.html", report::PlanPage(input));
//
// A script in the page draws the charts. When it is done, it sets the attribute data-check of <html> to "ok
// <N> intervals", or to "error" and the reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/step_picture.h"

namespace trainctl::report {

struct PageFact {
  std::string label;
  std::string value;
};

// A point in a chart in which lower is better on both axes.
struct ParetoPoint {
  std::string name;
  double x = 0;
  double y = 0;
  bool on_front = false;
  bool chosen = false;
};
struct ParetoChart {
  std::string x_label;  // label with its unit, such as "GPUs"
  std::string y_label;
  std::vector<ParetoPoint> points;
};

// Another layout, which is one row of the what-if table.
struct Alternative {
  std::string name;  // change of layout, such as "tp 8 -> 4"
  bool fits = true;
  double device_bytes = 0;  // peak of the rank with the most memory; 0 if not estimated
  double step_seconds = 0;  // 0 if not estimated
  // The cost and the benefit of the change, or by how much it exceeds the memory limit.
  std::string reason;
};

struct PageConstant {
  std::string name;
  std::string value;
  std::string source;
  // One of "data sheet", "measured" (a published measurement or a driver's report), "inferred" (from a
  // similar measurement) or "stated" (in the recipe).
  std::string origin = "data sheet";
};

struct PageInput {
  std::string title;            // name of the model
  std::vector<PageFact> facts;  // cluster, layout, batch and so on
  int64_t tokens_per_step = 0;
  int64_t devices = 1;
  double memory_limit_bytes = 0;  // limit per device; 0 for no limit
  StepPicture step;
  std::vector<Alternative> what_if;
  ParetoChart pareto;
  std::vector<PageConstant> constants;
  std::vector<std::string> notes;
};

// Returns the HTML of the page.
std::string PlanPage(const PageInput& input);

}  // namespace trainctl::report
