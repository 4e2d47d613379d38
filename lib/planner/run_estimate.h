// Estimates the speed, duration and cost of a run from the step time of a layout. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "plan/plan.h"
#include "recipe/recipe.h"

namespace trainctl::planner {

struct RunEstimate {
  double step_seconds = 0;
  double tokens_per_second = 0;  // speed of all workers together, without failures
  double mfu = 0;                // 0 if the peak of the device is unknown (plan/utilization.h)
  // Largest relative error of such estimates against measured steps (docs/reference/benchmarks.md); 0 if
  // no run was compared.
  double margin = 0;
  // Share of the run's time in which it trains; failures, restarts and saves take the rest. 1 if the
  // recipe has no plan.gpu_mtbf.
  double effective_share = 1;
  int64_t run_tokens = 0;
  // The duration and the costs below include failures, restarts and saves.
  double run_seconds = 0;
  double worker_hours_per_billion_tokens = 0;
  // Both are 0 if the recipe has no plan.price_per_gpu_hour.
  double dollars_per_billion_tokens = 0;
  double run_dollars = 0;
};

RunEstimate EstimateRun(const plan::Plan& plan, const plan::Candidate& candidate,
                        const recipe::Recipe& recipe);

// Formats the estimate as a sentence: "11.2 s a step, 93,000 tokens/s, 54.2 % MFU; 100B tokens take 12.4 days
// (± 4 %) and cost $32,000". If the recipe has plan.gpu_mtbf, adds the share of time for failures, restarts
// and saves. If it has plan.deadline, adds whether the run meets it.
std::string AnswerOf(const RunEstimate& estimate, const recipe::Recipe& recipe);

// Formats a duration with three significant digits in a suitable unit: "11.2 s", "45.3 ms", "12.4 days".
// Returns "for ever" if it is infinite.
std::string FormatSeconds(double seconds);
// Formats a number with three significant digits: "93,000", "1,240", "0.57".
std::string FormatRate(double value);

}  // namespace trainctl::planner
