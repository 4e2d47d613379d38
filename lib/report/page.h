// A plan as one self-contained HTML page: the step on a time line, memory over time, where memory and time
// go, what else was weighed, and where each constant is from. It asks nothing of any server, and every text
// that it shows may contain anything. Pure; thread safe.
//
//   report::PageInput input;
//   input.title = "GPT-3 175B"; input.step = ...; input.pareto = ...;
//   WriteFileAtomic("plan.html", report::PlanPage(input));
//
// The page draws itself; when it has, <html> has the attribute data-check: "ok <N> intervals", or "error" and
// why.
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

// Lower is better on both axes.
struct ParetoPoint {
  std::string name;
  double x = 0;
  double y = 0;
  bool on_front = false;
  bool chosen = false;
};
struct ParetoChart {
  std::string x_label;  // "GPUs"; with its unit
  std::string y_label;
  std::vector<ParetoPoint> points;
};

// Another layout: a row of the what-if table.
struct Alternative {
  std::string name;  // "tp 8 -> 4"
  bool fits = true;
  double device_bytes = 0;  // at the peak of the rank that needs most; 0: not priced
  double step_seconds = 0;  // 0: not priced
  std::string reason;       // what it would cost and save, or by how much it does not fit
};

struct PageConstant {
  std::string name;
  std::string value;
  std::string source;
  // "data sheet"; "measured" (by somebody who published it, or told by a driver); "inferred" from one that
  // was measured in a like case; "stated" in the recipe.
  std::string origin = "data sheet";
};

struct PageInput {
  std::string title;            // the model's name
  std::vector<PageFact> facts;  // cluster, layout, batch and so on
  int64_t tokens_per_step = 0;
  int64_t devices = 1;
  double memory_limit_bytes = 0;  // of one device; 0: none
  StepPicture step;
  std::vector<Alternative> what_if;
  ParetoChart pareto;
  std::vector<PageConstant> constants;
  std::vector<std::string> notes;
};

std::string PlanPage(const PageInput& input);

}  // namespace trainctl::report
