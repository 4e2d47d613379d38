// `trainctl plan`: our own trainer's layouts side by side, or a what-if of another trainer's.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/machine_access.h"
#include "apps/trainctl/output_options.h"
#include "apps/trainctl/plan_options.h"
#include "apps/trainctl/plan_ours.h"
#include "apps/trainctl/plan_sweep.h"
#include "apps/trainctl/plan_what_if.h"
#include "recipe/load.h"

namespace trainctl::cli {
namespace {

// What shows one plan makes no sense of several.
absl::Status CheckSweep(const PlanOptions& options) {
  if (options.sweeps.empty()) return absl::OkStatus();
  const std::pair<const char*, bool> shows_one[] = {{"--write", !options.write.empty()},
                                                    {"--trace", !options.trace.empty()},
                                                    {"--html", !options.html.empty()},
                                                    {"--draw", options.draw},
                                                    {"--explain", options.explain}};
  for (const auto& [option, is_given] : shows_one) {
    if (!is_given) continue;
    return UsageError(
        absl::StrCat(option, " shows a single plan, but --sweep computes several; use only one of them"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExitCode> RunPlan(PlanOptions options, const Output& output) {
  TRAINCTL_RETURN_IF_ERROR(CheckSweep(options));
  if (!options.sweeps.empty()) return SweepPlans(options, output);
  std::vector<std::string> unset;
  // A recipe that is written has the files' places in it, so variables have to be set.
  const recipe::Access access =
      Recording(options.write.empty() ? PlanAccess(&unset) : MachineAccess(), &options.output_rules.inputs);
  TRAINCTL_ASSIGN_OR_RETURN(
      recipe::LoadedRecipe loaded,
      recipe::LoadRecipe(options.recipe, options.sets, access, recipe::Purpose::kWhatIf));
  options.output_rules.inputs.insert(options.output_rules.inputs.end(), {options.recipe, options.profile});
  if (loaded.recipe.data.tokenizer != "byte") {
    options.output_rules.inputs.push_back(loaded.recipe.data.tokenizer);
  }
  TRAINCTL_RETURN_IF_ERROR(
      CheckOutputs({{"--write", &options.write}, {"--trace", &options.trace}, {"--html", &options.html}},
                   options.output_rules));
  if (loaded.purpose == recipe::Purpose::kWhatIf) return PlanWhatIf(loaded, options, output);
  loaded.missing.insert(loaded.missing.begin(), unset.begin(), unset.end());
  if (!loaded.unknown_length.ok()) {
    loaded.missing.push_back(
        absl::StrCat(loaded.unknown_length.message(), "; set train.steps to plan without data"));
  }
  return PlanOurs(loaded, options, output);
}

}  // namespace

void AddPlan(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("plan", "Compare parallel layouts and choose the best");
  auto options = std::make_shared<PlanOptions>();
  verb->add_option("RECIPE", options->recipe, "Recipe (TOML)")->required();
  verb->add_option("--set", options->sets, "Override a field: KEY=VALUE (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  // These are fields of the recipe as well; an option says it in one word.
  const auto stands_for = [&](const char* option, const char* field, const char* type, const char* help) {
    verb->add_option_function<std::string>(
            option,
            [options, field](const std::string& value) {
              options->sets.push_back(absl::StrCat(field, "=", value));
            },
            help)
        ->type_name(type);
  };
  stands_for("--objective", "plan.objective", "OBJECTIVE",
             "step_time, cost, headroom or fewest_gpus (default: the recipe's plan.objective)");
  stands_for("--price", "plan.price_per_gpu_hour", "DOLLARS", "Price of one GPU-hour");
  stands_for("--as", "plan.framework", "FRAMEWORK", "Estimate how another framework would run the recipe");
  verb->add_flag("--all", options->all, "Show every layout considered instead of the best of each family");
  verb->add_option("--top", options->top, "With --as, number of layouts to show")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--sweep", options->sweeps,
                   "Compute a plan for each value of a field: KEY=V1,V2,... (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=V1,V2");
  verb->add_option("--profile", options->profile,
                   "With --as, use the rates measured by `trainctl calibrate FILE.csv`")
      ->type_name("PROFILE");
  verb->add_option("--write", options->write, "Write a recipe with every value the planner chose filled in")
      ->type_name("OUT.toml");
  verb->add_flag("--explain", options->explain,
                 "Explain each part of memory and time, the limiting factors, the rejected layouts and the "
                 "source of each constant");
  verb->add_flag("--draw", options->draw, "Draw a timeline of each rank's step");
  verb->add_option("--trace", options->trace, "Write the timeline as a trace for Perfetto")
      ->type_name("OUT.json");
  verb->add_option("--html", options->html, "Write a self-contained HTML page")->type_name("OUT.html");
  AddForceFlag(*verb, options->output_rules.overwrite);
  verb->add_flag("--pareto", options->pareto,
                 "With --as, also show layouts that trade more time for less memory");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl plan recipes/toy_1m_cpu.toml --set cluster.devices_per_node=2");
  verb->callback(
      [&action, options] { action = [options](const Output& output) { return RunPlan(*options, output); }; });
}

}  // namespace trainctl::cli
