// A plan as one self-contained HTML page: the step on a time line, memory over time, where memory and time
// go, what else was weighed, and where each constant is from. It asks nothing of any server, and every text
// that it shows may contain anything. Pure; thread safe.
//
//   planner::PageInput input = planner::PageOf(workload, "GPT-3 175B");
//   input.pareto = ...; input.notes = ...;
//   WriteFileAtomic("plan.html", planner::PlanPage(input));
//
// The page draws itself; when it has, <html> has the attribute data-check: "ok <N> intervals", or "error" and
// why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "planner/neighbours.h"
#include "pricing/timeline.h"
#include "pricing/workload.h"

namespace trainctl::planner {

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
  pricing::Timeline timeline;
  std::vector<Neighbour> what_if;
  ParetoChart pareto;
  std::vector<PageConstant> constants;
  std::vector<std::string> notes;
};

// All that follows from the workload itself: what_if, pareto and notes are the caller's. Of long steps as
// much is drawn as a page can hold. `workload` is valid (pricing::Validate).
PageInput PageOf(const pricing::Workload& workload, absl::string_view model_name,
                 double memory_limit_bytes = 0);

// The device's and its links' constants with their sources; those that do not exist are left out.
std::vector<PageConstant> ConstantsOf(const pricing::Workload& workload);

std::string PlanPage(const PageInput& input);

}  // namespace trainctl::planner
