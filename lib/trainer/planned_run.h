// The plan that a worker runs, with its steps for training and evaluation. Constant for the whole run.
#pragma once

#include <utility>

#include "plan/plan.h"

namespace trainctl::trainer {

struct PlannedRun {
  PlannedRun(plan::Plan the_plan, plan::PlannedStep step)
      : plan(std::move(the_plan)),
        training(std::move(step)),
        evaluation(schedule::BuildLayoutForwards(plan.layout, training)) {}

  const plan::Plan plan;
  const plan::PlannedStep training;
  const schedule::Step evaluation;  // forward passes with the same layout
};

}  // namespace trainctl::trainer
