#include "apps/trainctl/plan_json.h"

#include <string>

#include "base/json.h"
#include "plan/utilization.h"
#include "planner/run_estimate.h"

namespace trainctl::cli {
namespace {

void AddEstimate(const plan::Plan& plan, const plan::Candidate& candidate, const recipe::Recipe& recipe,
                 Json& json) {
  const planner::RunEstimate estimate = planner::EstimateRun(plan, candidate, recipe);
  json["estimated_step_seconds"] = estimate.step_seconds;
  const auto if_known = [&](bool is_known, double value) {
    return is_known && plan::HasTimes(plan) ? Json(value) : Json();
  };
  json["tokens_per_second"] = if_known(true, estimate.tokens_per_second);
  json["time_margin"] = if_known(estimate.margin > 0, estimate.margin);
  json["mfu"] = if_known(estimate.mfu > 0, estimate.mfu);
  json["days"] = if_known(estimate.run_tokens > 0, estimate.run_seconds / 86400);
  json["cost"] = if_known(estimate.run_dollars > 0, estimate.run_dollars);
  json["peak_bytes"] = candidate.memory.peak_bytes;
  for (int category = 0; category < schedule::kNumCategories; ++category) {
    json["memory_by_category"]
        [std::string(schedule::CategoryName(static_cast<schedule::Category>(category)))] =
            candidate.memory.at_peak[static_cast<size_t>(category)];
  }
}

}  // namespace

Json PlanWithEstimates(const plan::Plan& plan, const recipe::Recipe& recipe) {
  Json json = plan::PlanToJsonObject(plan);
  for (size_t i = 0; i < plan.candidates.size(); ++i) {
    AddEstimate(plan, plan.candidates[i], recipe, json["candidates"][i]);
    if (plan.candidates[i].chosen) AddEstimate(plan, plan.candidates[i], recipe, json["chosen"]);
  }
  return json;
}

}  // namespace trainctl::cli
