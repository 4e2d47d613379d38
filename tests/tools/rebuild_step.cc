// The step that a worker rebuilds: reads lines "RECIPE PLAN" (a recipe in TOML, a plan.json) and prints for
// each the hash of the step that the two make, or what is wrong.

#include <iostream>
#include <sstream>
#include <string>

#include "base/files.h"
#include "plan/plan.h"
#include "recipe/load.h"
#include "schedule/step_hash.h"

namespace trainctl {
namespace {

absl::StatusOr<std::string> HashOf(const std::string& recipe_path, const std::string& plan_path) {
  TRAINCTL_ASSIGN_OR_RETURN(
      const recipe::LoadedRecipe loaded,
      recipe::LoadRecipe(recipe_path, {}, recipe::RealAccess(), recipe::Purpose::kPlan));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(plan_path));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, plan::PlanFromJson(text, plan_path));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::PlannedStep step, plan::RebuildStep(plan, loaded.recipe.model.spec));
  return schedule::HashStep(step.step, step.ledger);
}

}  // namespace
}  // namespace trainctl

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string recipe, plan;
    words >> recipe >> plan;
    const absl::StatusOr<std::string> hash = trainctl::HashOf(recipe, plan);
    std::cout << (hash.ok() ? *hash : std::string(hash.status().message())) << std::endl;
  }
}
