// Speed, duration and cost of a run, estimated from the step time of a layout. Pure; thread safe.
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
  // Largest relative error of such estimates against measured steps (docs/reference/benchmarks.md); 0 if
  // no run was compared.
  double margin = 0;
  // Share of the run's time in which it trains; failures, restarts and saves take the rest. 1 if the
  // recipe has no plan.gpu_mtbf.
  double effective_share = 1;
  int64_t run_tokens = 0;
  double run_seconds = 0;  // with failures, restarts and saves
  double worker_hours_per_billion_tokens = 0;
  double dollars_per_billion_tokens = 0;  // this and the next: 0 if the recipe has no plan.price_per_gpu_hour
  double run_dollars = 0;
};

RunEstimate EstimateRun(const plan::Plan& plan, const plan::Candidate& candidate,
                        const recipe::Recipe& recipe);

// "11.2 s a step, 93,000 tokens/s, 54 % MFU; 100B tokens take 12.4 days (± 4 %) and cost $32,000". If the
// recipe has plan.deadline or plan.gpu_mtbf, the sentence includes whether the run meets the deadline and the
// share of failures.
std::string AnswerOf(const RunEstimate& estimate, const recipe::Recipe& recipe);

// "11.2 s", "45.3 ms", "12.4 days": three digits, in the unit that a person would take.
std::string FormatSeconds(double seconds);
// "93,000", "1,240", "0.57": three digits.
std::string FormatRate(double value);

}  // namespace trainctl::planner
