#include "apps/trainctl/new_finetune.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/machine_access.h"
#include "base/folder_paths.h"
#include "base/json.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "base/units.h"
#include "data/data_file.h"
#include "data/example_fields.h"
#include "data/kept_documents.h"
#include "data/source_kind.h"
#include "launcher/printable_text.h"
#include "model/parameters.h"
#include "planner/make_plan.h"
#include "recipe/finetune_starter.h"
#include "recipe/load.h"
#include "recipe/paths.h"
#include "recipe/values.h"

namespace trainctl::cli {
namespace {

// The name of the recipe in its first comment and in messages.
std::string RecipeFile(const FineTuneOptions& options) {
  return options.out == "-" ? "recipe.toml" : options.out;
}

// Returns a path of the command line relative to the recipe's folder.
absl::StatusOr<std::string> PathInRecipe(const std::string& path, const FineTuneOptions& options) {
  const std::filesystem::path folder = std::filesystem::path(RecipeFile(options)).parent_path();
  if (std::filesystem::path(path).is_absolute() || folder.empty()) return path;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string absolute, AbsolutePath(path));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string absolute_folder, AbsolutePath(folder.string()));
  return std::filesystem::path(absolute).lexically_relative(absolute_folder).string();
}

// Sets the fields of the data files, which must be the same in all of them.
absl::Status FindFields(const std::vector<std::string>& files, recipe::FineTune& choices,
                        std::vector<std::string>& notes) {
  for (size_t i = 0; i < files.size(); ++i) {
    TRAINCTL_RETURN_IF_ERROR(Annotate(data::CheckInputFile(files[i]).status(), "--data"));
    absl::StatusOr<data::SourceKind> kind = data::KindOfFile(recipe::DataSource(), files[i]);
    if (!kind.ok()) return Annotate(kind.status(), "--data");
    const bool has_fields = data::HasRows(*kind);
    std::vector<std::string> names;
    if (*kind == data::SourceKind::kJsonl) {
      TRAINCTL_ASSIGN_OR_RETURN(names, data::FieldNamesOfFirstLine(files[i]));
      if (names.empty()) {
        notes.push_back(absl::StrCat("no fields were found in the first line of ", files[i],
                                     "; each line must be a JSON object, such as {\"prompt\": \"...\", "
                                     "\"text\": \"...\"}"));
      }
    }
    const data::ExampleFields fields = data::FindExampleFields(names);
    if (i > 0 && (has_fields != choices.has_fields || fields.prompt_field != choices.prompt_field ||
                  fields.text_field != choices.text_field)) {
      return UsageError(absl::StrCat("--data: ", files[0], " and ", files[i],
                                     " have different fields; name files with the same fields, and add a "
                                     "[[data.train]] table for the others to the recipe"));
    }
    choices.has_fields = has_fields;
    choices.prompt_field = fields.prompt_field;
    choices.text_field = fields.text_field;
    if (i == 0) choices.field_names = names;
    const auto has = [&](const char* name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (fields.prompt_field == "instruction" && has("input")) {
      notes.push_back(absl::StrCat("the field \"input\" of ", files[i],
                                   " is not read; if it is not empty, append it to \"instruction\""));
    }
    if (fields.text_field.empty() && (has("messages") || has("conversations"))) {
      choices.has_conversations = true;
      notes.push_back(absl::StrCat(files[i],
                                   " contains conversations; render them with the model's chat "
                                   "template first (docs/guide/finetune.md)"));
    }
  }
  return absl::OkStatus();
}

// The model in the folder, as a recipe that names it is loaded. Errors name --from instead of a line of that
// recipe.
absl::StatusOr<recipe::LoadedRecipe> LoadModel(const std::string& from, const recipe::Access& access) {
  constexpr char kName[] = "--from";
  const std::string text = absl::StrCat("recipe_version = 1\n[model]\nfrom = ", recipe::QuoteToml(from),
                                        "\nweights = \"from\"\n[cluster]\ndevice = \"auto\"\n");
  absl::StatusOr<recipe::LoadedRecipe> loaded =
      recipe::LoadRecipeText(text, kName, {}, access, recipe::Purpose::kPlan);
  if (loaded.ok()) return loaded;
  return absl::Status(loaded.status().code(), absl::StrReplaceAll(loaded.status().message(),
                                                                  {{"--from:3:1: model.from: ", "--from: "},
                                                                   {"--from:3:1 (model.from): ", "--from: "},
                                                                   {"--from:3:1: ", "--from: "}}));
}

struct Fit {
  absl::Status status;     // the planner's error if there is no plan
  int64_t peak_bytes = 0;  // peak memory per worker
  int64_t limit_bytes = 0;
};

Fit FindFit(const recipe::Recipe& recipe) {
  const absl::StatusOr<cluster::Host> host = HostOfRun(recipe);
  if (!host.ok()) return {.status = host.status()};
  const absl::StatusOr<plan::Plan> plan = planner::MakePlanFor(recipe, *host);
  if (!plan.ok()) return {.status = plan.status()};
  return {.peak_bytes = plan->predicted.peak_bytes, .limit_bytes = plan->memory_limit_bytes};
}

void Print(const FineTuneOptions& options, const recipe::FineTune& choices, const recipe::Starter& starter,
           const Fit& fit, const std::vector<std::string>& notes, bool json) {
  if (json) {
    Json report = {{"schema", "trainctl.new.v1"},
                   {"preset", starter.name},
                   {"path", options.out},
                   {"from", choices.model},
                   {"parameters", choices.num_parameters},
                   {"fits", fit.status.ok()},
                   {"notes", notes}};
    if (fit.status.ok()) {
      report["predicted_bytes"] = fit.peak_bytes;
      report["limit_bytes"] = fit.limit_bytes;
    } else {
      report["why_not"] = std::string(fit.status.message());
    }
    std::puts(PrintableJson(report).c_str());
    return;
  }
  std::printf("%s: %s\n", launcher::PrintableText(options.out).c_str(), starter.summary.c_str());
  if (!choices.text_field.empty()) {
    std::printf("Fields of the examples: %s\n",
                choices.prompt_field.empty()
                    ? choices.text_field.c_str()
                    : absl::StrCat(choices.prompt_field, " (prompt), ", choices.text_field).c_str());
  }
  if (fit.status.ok()) {
    std::printf("Fits this machine: each worker needs %s of %s\n", FormatBytes(fit.peak_bytes).c_str(),
                FormatBytes(fit.limit_bytes).c_str());
  }
  for (const std::string& note : notes) std::printf("note: %s\n", launcher::PrintableText(note).c_str());
  std::printf("%s\n", recipe::StarterBefore(starter, ShellQuote(options.out)).c_str());
}

}  // namespace

absl::StatusOr<ExitCode> NewFineTune(FineTuneOptions options, const Output& output) {
  options.output_rules.inputs = options.data;
  options.output_rules.inputs.push_back(absl::StrCat(options.from, "/config.json"));
  if (options.out != "-") {
    TRAINCTL_RETURN_IF_ERROR(FindOutput(options.out, options.output_rules).status());
  }
  data::KeptDocuments kept;
  const recipe::Access access = MachineAccess(&kept);
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe model, LoadModel(options.from, access));

  recipe::FineTune choices;
  TRAINCTL_ASSIGN_OR_RETURN(choices.model, PathInRecipe(options.from, options));
  choices.num_parameters = model::NumParameters(model.recipe.model.spec);
  choices.max_position = model.recipe.model.spec.max_position;
  choices.num_workers = model.recipe.cluster.nodes * model.recipe.cluster.devices_per_node;
  std::vector<std::string> data_notes;
  TRAINCTL_RETURN_IF_ERROR(FindFields(options.data, choices, data_notes));
  for (const std::string& file : options.data) {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string path, PathInRecipe(file, options));
    choices.files.push_back(recipe::LiteralPattern(path));
  }

  const std::string file = RecipeFile(options);
  const std::string name = std::filesystem::path(file).filename().string();
  const auto load = [&](const recipe::Starter& starter) {
    return recipe::LoadRecipeText(recipe::StarterText(starter, name), file, {}, access,
                                  recipe::Purpose::kPlan);
  };
  recipe::Starter starter = recipe::FineTuneStarter(choices);
  TRAINCTL_ASSIGN_OR_RETURN(recipe::LoadedRecipe loaded, load(starter));
  // The batch, the warm-up, the evaluations and the checkpoints depend on the amount of data.
  if (!choices.files.empty() && (!choices.has_fields || !choices.text_field.empty())) {
    const absl::StatusOr<int64_t> tokens = access.count_epoch_tokens(loaded.recipe);
    if (!tokens.ok()) return Annotate(tokens.status(), "--data");
    choices.epoch_tokens = *tokens;
    starter = recipe::FineTuneStarter(choices);
    TRAINCTL_ASSIGN_OR_RETURN(loaded, load(starter));
  }

  std::vector<std::string> notes = std::move(loaded.notes);
  notes.insert(notes.end(), data_notes.begin(), data_notes.end());
  const Fit fit = FindFit(loaded.recipe);
  if (!fit.status.ok()) {
    notes.push_back(absl::StrCat("this machine cannot run this recipe: ", fit.status.message(),
                                 ". To plan for a GPU, run: trainctl plan ", ShellQuote(file),
                                 " --set cluster.device=h100"));
  }
  const std::string text = recipe::StarterText(starter, name);
  if (options.out == "-") {
    std::fputs(text.c_str(), stdout);
    for (const std::string& note : notes)
      std::fprintf(stderr, "note: %s\n", launcher::PrintableText(note).c_str());
    return ExitCode::kOk;
  }
  TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(options.out, text, options.output_rules));
  Print(options, choices, starter, fit, notes, output.json);
  return ExitCode::kOk;
}

}  // namespace trainctl::cli
