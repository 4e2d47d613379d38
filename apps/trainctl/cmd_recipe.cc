// trainctl recipe check | show | explain | schema | reference.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/launch_needs.h"
#include "apps/trainctl/machine_access.h"
#include "base/json.h"
#include "base/units.h"
#include "data/batch_source.h"
#include "data/data_record.h"
#include "data/kept_documents.h"
#include "launcher/printable_text.h"
#include "model/parameters.h"
#include "planner/make_plan.h"
#include "recipe/describe.h"
#include "recipe/json_schema.h"
#include "recipe/load.h"
#include "recipe/show.h"

namespace trainctl::cli {
namespace {

struct RecipeOptions {
  std::string path;
  std::vector<std::string> sets;
  bool all = false;
};

std::string Summary(const recipe::Recipe& recipe) {
  const int64_t tokens = recipe.train.steps * recipe.train.batch_sequences * recipe.data.seq_len;
  const std::string length =
      recipe.train.epochs.has_value()
          ? absl::StrFormat("%g epochs in steps", *recipe.train.epochs)
          : absl::StrCat(FormatCount(tokens), " tokens in ", recipe.train.steps, " steps");
  return absl::StrFormat("%s parameters, %s of %d sequences of %d, %d x %d workers on %s",
                         FormatCount(model::NumParameters(recipe.model.spec)), length,
                         recipe.train.batch_sequences, recipe.data.seq_len, recipe.cluster.nodes,
                         recipe.cluster.devices_per_node, recipe.cluster.device);
}

// As `launch` reads it; what `launch` refuses may be a what-if, which is read as `plan` reads it.
absl::StatusOr<recipe::LoadedRecipe> Load(const RecipeOptions& options) {
  absl::StatusOr<recipe::LoadedRecipe> launched =
      recipe::LoadRecipe(options.path, options.sets, MachineAccess());
  if (launched.ok()) return launched;
  absl::StatusOr<recipe::LoadedRecipe> what_if =
      recipe::LoadRecipe(options.path, options.sets, MachineAccess(), recipe::Purpose::kWhatIf);
  return what_if.ok() && what_if->purpose == recipe::Purpose::kWhatIf ? std::move(what_if)
                                                                      : std::move(launched);
}

Json ReportOf(const RecipeOptions& options, const recipe::LoadedRecipe& loaded,
              const std::vector<data::SourceUse>& uses) {
  return {{"schema", "trainctl.recipe-check.v1"},
          {"ok", true},
          {"path", options.path},
          {"what_if", loaded.purpose == recipe::Purpose::kWhatIf},
          {"parameters", model::NumParameters(loaded.recipe.model.spec)},
          {"steps", loaded.recipe.train.steps},
          {"data", data::UsesToJson(uses, loaded.recipe.train.steps)},
          {"notes", loaded.notes}};
}

void PrintJson(const Json& json) { std::puts(PrintableJson(json).c_str()); }

absl::StatusOr<ExitCode> CheckAll(const RecipeOptions& options, const Output& output);

absl::StatusOr<ExitCode> Check(const RecipeOptions& options, const Output& output) {
  if (options.all) return CheckAll(options, output);
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe loaded, Load(options));
  const bool is_what_if = loaded.purpose == recipe::Purpose::kWhatIf;
  std::vector<data::SourceUse> uses;
  if (!is_what_if) uses = data::FindUsesQuickly(loaded.recipe);
  if (output.json) {
    PrintJson(ReportOf(options, loaded, uses));
    return ExitCode::kOk;
  }
  std::printf("%s is valid%s: %s\n", options.path.c_str(),
              is_what_if ? " for planning, but it cannot be launched" : "", Summary(loaded.recipe).c_str());
  if (!uses.empty()) {
    std::printf("note: %s\n", data::FormatUses(uses, loaded.recipe.train.steps).c_str());
  }
  for (const std::string& note : loaded.notes) std::printf("note: %s\n", note.c_str());
  return ExitCode::kOk;
}

// Also what a launch needs of this machine, as `launch --dry-run` lists it, and whether it fits.
absl::StatusOr<ExitCode> CheckAll(const RecipeOptions& options, const Output& output) {
  std::vector<std::string> unset;
  data::KeptDocuments kept;
  TRAINCTL_ASSIGN_OR_RETURN(
      recipe::LoadedRecipe loaded,
      recipe::LoadRecipe(options.path, options.sets, PlanAccess(&unset, &kept), recipe::Purpose::kPlan));
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(loaded.recipe));
  std::vector<absl::Status> checks = LacksOfRecipe(loaded, unset);
  LaunchNeeds needs = FindMissing(loaded.recipe, host, /*run_dir=*/"", output, &kept);
  for (absl::Status& status : needs.missing) checks.push_back(std::move(status));
  checks.push_back(loaded.unknown_length);
  for (std::string& note : needs.notes) loaded.notes.push_back(std::move(note));
  checks.push_back(planner::MakePlanFor(loaded.recipe, host).status());
  const std::vector<std::string> missing = TextsOf(checks);
  if (loaded.recipe.launch.backend == "ssh") {
    loaded.notes.emplace_back(
        "the machines of launch.ssh were not contacted; `trainctl launch --dry-run` also checks them");
  }
  if (output.json) {
    Json report = ReportOf(options, loaded, needs.uses);
    report["ok"] = missing.empty();
    report["missing"] = missing;
    PrintJson(report);
  } else {
    std::printf("%s is valid, and %s: %s\n", options.path.c_str(),
                missing.empty() ? "this machine has everything it needs" : "cannot be launched here",
                Summary(loaded.recipe).c_str());
    for (const std::string& note : loaded.notes) std::printf("note: %s\n", note.c_str());
    for (const std::string& text : missing) {
      std::printf("missing here: %s\n", launcher::PrintableText(text, /*keep_newlines=*/true).c_str());
    }
  }
  return ExitCodeFor(AsOneError(checks));
}

absl::StatusOr<ExitCode> Show(const RecipeOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe loaded, Load(options));
  std::fputs((output.json ? recipe::ToShowJson(loaded) : recipe::ToToml(loaded)).c_str(), stdout);
  return ExitCode::kOk;
}

using Function = absl::StatusOr<ExitCode> (*)(const RecipeOptions&, const Output&);

std::shared_ptr<RecipeOptions> AddVerb(CLI::App& parent, Action& action, const char* name, const char* help,
                                       Function run) {
  CLI::App* verb = parent.add_subcommand(name, help);
  auto options = std::make_shared<RecipeOptions>();
  verb->add_option("RECIPE", options->path, "Recipe (TOML)")->required();
  verb->add_option("--set", options->sets, "Override a field: KEY=VALUE (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  AddJsonFlag(*verb);
  SetExample(*verb, absl::StrCat("trainctl recipe ", name, " recipes/toy_1m_cpu.toml --set train.steps=50"));
  verb->callback([&action, options, run] {
    action = [options, run](const Output& output) { return run(*options, output); };
  });
  return options;
}

void AddExplain(CLI::App& parent, Action& action) {
  CLI::App* verb =
      parent.add_subcommand("explain", "Explain a recipe key: its meaning, allowed values and default");
  auto key = std::make_shared<std::string>();
  verb->add_option("KEY", *key, "Key or table, for example train.steps or optimizer")
      ->required()
      ->type_name("KEY");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl recipe explain train.steps");
  verb->callback([&action, key] {
    action = [key](const Output& output) -> absl::StatusOr<ExitCode> {
      TRAINCTL_ASSIGN_OR_RETURN(const std::string text,
                                output.json ? recipe::ExplainJson(*key) : recipe::Explain(*key));
      std::fputs(text.c_str(), stdout);
      return ExitCode::kOk;
    };
  });
}

void AddPrinter(CLI::App& parent, Action& action, const char* name, const char* help, std::string (*text)()) {
  CLI::App* verb = parent.add_subcommand(name, help);
  SetExample(*verb, absl::StrCat("trainctl recipe ", name));
  verb->callback([&action, text] {
    action = [text](const Output&) -> absl::StatusOr<ExitCode> {
      std::fputs(text().c_str(), stdout);
      return ExitCode::kOk;
    };
  });
}

}  // namespace

void AddRecipe(CLI::App& app, Action& action) {
  CLI::App* recipe = app.add_subcommand("recipe", "Check, show and explain recipes");
  recipe->require_subcommand(1);
  SetExample(*recipe, "trainctl recipe check recipes/toy_1m_cpu.toml");
  const std::shared_ptr<RecipeOptions> checked =
      AddVerb(*recipe, action, "check", "Check a recipe and report the location of every mistake", Check);
  recipe->get_subcommand("check")
      ->add_flag("--all", checked->all)
      ->description(
          "Also list everything a launch needs that this machine lacks, such as data, weights, disk space "
          "and memory (exit code 2 if a path matches nothing, 5 if something is missing, 6 if it is "
          "damaged)");
  AddVerb(*recipe, action, "show", "Print the resolved recipe and the source of each value", Show);
  AddExplain(*recipe, action);
  AddPrinter(*recipe, action, "schema", "Print the recipe's JSON Schema, for editors", recipe::JsonSchema);
  // For the maintainers: docs/reference/recipe.md is this output.
  AddPrinter(*recipe, action, "reference", "Print the reference for all fields, as Markdown",
             recipe::ReferencePage);
  recipe->get_subcommand("reference")->group("");
}

}  // namespace trainctl::cli
