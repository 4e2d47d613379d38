// What the step of a layout means for a whole run: its speed, its duration and its cost. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "plan/plan.h"
#include "recipe/recipe.h"

namespace trainctl::planner {

struct RunEstimate {
  double step_seconds = 0;
  double tokens_per_second = 0;  // of all workers
  double mfu = 0;                // 0: the peak is unknown (plan/utilization.h)
  // Of the run's time, the share that trains. The rest goes to failures, restarts and saves: 1 if the recipe
  // has no plan.gpu_mtbf.
  double effective_share = 1;
  int64_t run_tokens = 0;
  double run_seconds = 0;  // with failures, restarts and saves
  double worker_hours_per_billion_tokens = 0;
  double dollars_per_billion_tokens = 0;  // this and the next: 0 if the recipe has no plan.price_per_gpu_hour
  double run_dollars = 0;
};

RunEstimate EstimateRun(const plan::Plan& plan, const plan::Candidate& candidate,
                        const recipe::Recipe& recipe);

// "11.2 s a step, 93,000 tokens/s, 54 % MFU; 100B tokens take 12.4 days and cost $32,000". The sentence says
// whether plan.deadline is met, and what failures cost.
std::string AnswerOf(const RunEstimate& estimate, const recipe::Recipe& recipe);

// "11.2 s", "45.3 ms", "12.4 days": three digits, in the unit that a person would take.
std::string FormatSeconds(double seconds);
// "93,000", "1,240", "0.57": three digits.
std::string FormatRate(double value);

}  // namespace trainctl::planner
