// `trainctl models`: the model families and the presets.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "apps/trainctl/command.h"
#include "apps/trainctl/text_table.h"
#include "base/json.h"
#include "base/status.h"
#include "base/units.h"
#include "launcher/printable_text.h"
#include "model/families.h"
#include "model/family_features.h"
#include "model/models_page.h"
#include "model/parameters.h"
#include "model/presets.h"

namespace trainctl::cli {
namespace {

Json ToJson(const model::Family& family) {
  Json json = {{"model_type", family.model_type},
               {"family", NameOf(family)},
               {"models", family.models},
               {"trained", model::IsTrained(family)}};
  // Families that can only be planned are described as far as the planner needs it.
  if (!model::IsTrained(family)) return json;
  const model::FamilyFeatures features = model::FeaturesOf(family);
  json["norms"] = features.norms;
  json["positions"] = features.positions;
  json["windows"] = features.windows;
  json["mlp"] = features.mlp;
  json["biases"] = features.biases;
  json["weights"] = features.weights;
  json["factors"] = features.factors;
  return json;
}

void PrintJson() {
  Json json = {{"schema", "trainctl.models.v1"}, {"families", Json::array()}, {"presets", Json::array()}};
  for (const model::Family& family : model::Families()) json["families"].push_back(ToJson(family));
  for (const model::NamedModel& preset : model::NamedModels()) {
    json["presets"].push_back({{"name", preset.name},
                               {"parameters", model::NumParameters(preset.spec)},
                               {"active_parameters", model::NumActiveParameters(preset.spec)},
                               {"trained", model::WhyNotTrainable(preset.spec).empty()},
                               {"source", preset.source}});
  }
  std::puts(PrintableJson(json, 2).c_str());
}

void PrintTables(bool color) {
  TextTable trained({"model_type", "models", "differs from Llama in"}, {0, 1, 2});
  TextTable planned({"only planned", "models"}, {0, 1});
  for (const model::Family& family : model::Families()) {
    if (model::IsTrained(family)) {
      trained.Add({NameOf(family), family.models, model::Differences(model::FeaturesOf(family))});
    } else {
      planned.Add({family.model_type, family.models});
    }
  }
  TextTable presets({"preset", "parameters", ""}, {0, 2});
  for (const model::NamedModel& preset : model::NamedModels()) {
    presets.Add({preset.name, FormatCount(model::NumParameters(preset.spec)),
                 model::WhyNotTrainable(preset.spec).empty() ? "" : "only planned"});
  }
  trained.Print(color);
  std::puts("");
  planned.Print(color);
  std::puts("");
  presets.Print(color);
}

absl::StatusOr<ExitCode> Run(bool markdown, const Output& output) {
  if (markdown && output.json) {
    return UsageError("--markdown and --json are two forms of the same output; use only one of them");
  }
  if (output.json) {
    PrintJson();
  } else if (markdown) {
    std::fputs(model::ModelsPage().c_str(), stdout);
  } else {
    PrintTables(output.stdout_color);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddModels(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("models", "List the model families and presets");
  auto markdown = std::make_shared<bool>(false);
  verb->add_flag("--markdown", *markdown, "Print the tables as Markdown");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl models");
  verb->callback(
      [&action, markdown] { action = [markdown](const Output& output) { return Run(*markdown, output); }; });
}

}  // namespace trainctl::cli
