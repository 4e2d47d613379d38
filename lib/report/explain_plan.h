// Why a plan of our own trainer needs the memory and the time that it does: every term of the step that will
// run. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_spec.h"
#include "plan/plan.h"

namespace trainctl::report {

struct TimeTerm {
  std::string name;  // an operator, "optimizer step", "communication", ...
  double seconds = 0;
};

struct PlanExplanation {
  std::vector<simulate::LiveBytes> memory;  // at the peak, largest first; add up to predicted.peak_bytes
  std::vector<TimeTerm> time;               // of one step if nothing overlapped, longest first
  double step_seconds = 0;                  // with what overlaps
  double overlapped_seconds = 0;            // of the terms, hidden behind others
  std::vector<simulate::AxisVolume> axes;   // what moves between workers
  std::vector<std::string> bindings;        // what keeps memory and time from being less
  std::vector<std::string> trust;           // how far to believe the numbers
};

PlanExplanation ExplainPlan(const plan::Plan& plan, const model::ModelSpec& spec);

// Source of the plan's times and how reliable they are, in one sentence.
std::string TrustInTime(const plan::Plan& plan);

}  // namespace trainctl::report
