// `trainctl verify`: whether the gradient of a recipe's layout is right.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/trainctl/command.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/machine_access.h"
#include "apps/trainctl/verify_plan.h"
#include "launcher/printable_text.h"
#include "planner/make_plan.h"
#include "recipe/load.h"

namespace trainctl::cli {
namespace {

struct VerifyOptions {
  std::string recipe;
  std::vector<std::string> sets;
};

absl::StatusOr<ExitCode> Verify(const VerifyOptions& options, const Output& output) {
  std::vector<std::string> missing;  // data, say: none is needed
  recipe::Access access = PlanAccess(&missing);
  access.count_epoch_tokens = nullptr;  // nor is the length of the run
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe loaded,
                            recipe::LoadRecipe(options.recipe, options.sets, access, recipe::Purpose::kPlan));
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(loaded.recipe));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, planner::MakePlanFor(loaded.recipe, host));
  if (!output.json) {
    std::printf("%s: %s\n", launcher::PrintableText(options.recipe).c_str(), plan.layout.ToString().c_str());
  }
  return ExecVerify(loaded.recipe.model, plan, output.json ? "json" : "text");
}

}  // namespace

void AddVerify(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("verify", "Check a layout's gradients on a small model against a single process");
  auto options = std::make_shared<VerifyOptions>();
  verb->add_option("RECIPE", options->recipe, "Recipe (TOML)")->required();
  verb->add_option("--set", options->sets, "Override a field: KEY=VALUE (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  AddJsonFlag(*verb);
  SetExample(*verb,
             "trainctl verify recipes/toy_1m_cpu.toml --set cluster.devices_per_node=4 --set parallel.tp=2");
  verb->callback(
      [&action, options] { action = [options](const Output& output) { return Verify(*options, output); }; });
}

}  // namespace trainctl::cli
