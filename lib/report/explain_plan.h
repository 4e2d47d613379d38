// Explains the memory and time of a plan for trainctl's trainer, with every term of the step that will run.
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/architecture.h"
#include "plan/plan.h"

namespace trainctl::report {

struct TimeTerm {
  std::string name;  // name of an operator, "optimizer step", "communication", ...
  double seconds = 0;
};

struct PlanExplanation {
  // Memory at the peak of the class that needs the most, largest first. The sum is predicted.peak_bytes.
  std::vector<simulate::LiveBytes> memory;
  // Time of one step if nothing overlapped, longest first. With a pipeline, these are the terms of the first
  // stage, including the time for which it waits for other stages.
  std::vector<TimeTerm> time;
  // Time of one step with overlap.
  double step_seconds = 0;
  // The part of the terms that overlaps with other terms.
  double overlapped_seconds = 0;
  // Traffic of a worker over each axis of the mesh, per step.
  std::vector<simulate::AxisVolume> axes;
  // The constraints that keep memory and time from being lower.
  std::vector<std::string> bindings;
  // How reliable the numbers are.
  std::vector<std::string> trust;
};

// Builds the plan's step again and explains it. `spec` must be the model for which the plan was made.
PlanExplanation ExplainPlan(const plan::Plan& plan, const model::Architecture& spec);

// Describes in one sentence the source of the plan's times and how reliable they are.
std::string TrustInTime(const plan::Plan& plan);

}  // namespace trainctl::report
