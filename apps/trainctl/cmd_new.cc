// `trainctl new`: writes a commented recipe to begin with.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/new_finetune.h"
#include "apps/trainctl/output_options.h"
#include "apps/trainctl/text_table.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "launcher/printable_text.h"
#include "recipe/starter.h"

namespace trainctl::cli {
namespace {

struct NewOptions {
  std::string preset;
  std::string from;
  std::vector<std::string> data;
  std::string out = "recipe.toml";
  bool list = false;
  OutputRules output_rules;
};

absl::StatusOr<ExitCode> List(const Output& output) {
  if (output.json) {
    Json json = {{"schema", "trainctl.new.v1"}, {"presets", Json::array()}};
    for (const recipe::Starter& starter : recipe::Starters()) {
      json["presets"].push_back({{"name", starter.name}, {"summary", starter.summary}});
    }
    std::puts(PrintableJson(json, 2).c_str());
    return ExitCode::kOk;
  }
  TextTable table({"preset", "a recipe for"}, {0, 1});
  for (const recipe::Starter& starter : recipe::Starters()) table.Add({starter.name, starter.summary});
  table.Print(output.stdout_color);
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Run(const NewOptions& options, const Output& output) {
  if (options.list && !options.from.empty()) return UsageError("--list and --from cannot be combined");
  if (options.list) return List(output);
  if (!options.from.empty()) {
    if (!options.preset.empty() && options.preset != "finetune") {
      return UsageError(absl::StrCat("--from writes a recipe for fine-tuning; leave out ", options.preset));
    }
    return NewFineTune({options.from, options.data, options.out, options.output_rules}, output);
  }
  if (!options.data.empty()) return UsageError("--data requires --from FOLDER");
  const recipe::Starter* starter = &recipe::Starters()[0];
  if (!options.preset.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(starter, recipe::FindStarter(options.preset));
  }
  if (options.out == "-") {
    std::fputs(recipe::StarterText(*starter, "recipe.toml").c_str(), stdout);
    return ExitCode::kOk;
  }
  const std::string name = std::filesystem::path(options.out).filename().string();
  TRAINCTL_RETURN_IF_ERROR(
      WriteOutputFile(options.out, recipe::StarterText(*starter, name), options.output_rules));
  if (output.json) {
    const Json json = {{"schema", "trainctl.new.v1"}, {"preset", starter->name}, {"path", options.out}};
    std::puts(PrintableJson(json).c_str());
  } else {
    std::printf("%s: %s\n%s\n", launcher::PrintableText(options.out).c_str(), starter->summary.c_str(),
                recipe::StarterBefore(*starter, ShellQuote(options.out)).c_str());
  }
  return ExitCode::kOk;
}

}  // namespace

void AddNew(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("new", "Write a commented starter recipe");
  auto options = std::make_shared<NewOptions>();
  verb->add_option("PRESET", options->preset, "Kind of recipe to write (default: text); see --list")
      ->type_name("PRESET");
  verb->add_option("--from", options->from,
                   "Write a recipe for fine-tuning this Hugging Face folder, with settings for its size")
      ->type_name("FOLDER");
  verb->add_option("--data", options->data, "With --from, files to train on (repeatable)")->type_name("FILE");
  verb->add_option("--out", options->out, "File to write; - for stdout")
      ->type_name("FILE")
      ->capture_default_str();
  AddForceFlag(*verb, options->output_rules.overwrite);
  verb->add_flag("--list", options->list, "List the presets");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl new text --out mine.toml");
  verb->callback(
      [&action, options] { action = [options](const Output& output) { return Run(*options, output); }; });
}

}  // namespace trainctl::cli
