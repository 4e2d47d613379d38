// `trainctl models`: the model families and the presets.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
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
#include "recipe/values.h"

namespace trainctl::cli {
namespace {

struct Listed {
  std::vector<const model::Family*> families;
  std::vector<const model::NamedModel*> presets;
};

// Returns the words and numbers of a name: "llama", "3.1", "8", "b" for "Llama 3.1-8B", and "phi", "3", "4"
// for "Phi 3 to 4".
std::vector<std::string> WordsOf(absl::string_view name) {
  std::vector<std::string> words;
  bool ends_word = true;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    const bool is_point = c == '.' && i + 1 < name.size() && absl::ascii_isdigit(name[i + 1]) && !ends_word &&
                          absl::ascii_isdigit(words.back().back());
    if (!absl::ascii_isalnum(c) && !is_point) {
      ends_word = true;
      continue;
    }
    const bool is_number = is_point || absl::ascii_isdigit(c);
    if (ends_word || is_number != absl::ascii_isdigit(words.back()[0])) words.emplace_back();
    words.back() += absl::ascii_tolower(c);
    ends_word = false;
  }
  return words;
}

// Adds the numbers between "1" and "3" in "1 to 3".
void AddRanges(std::vector<std::string>& words) {
  for (size_t i = 1; i + 1 < words.size(); ++i) {
    int first = 0;
    int last = 0;
    if (words[i] != "to" || !absl::SimpleAtoi(words[i - 1], &first) ||
        !absl::SimpleAtoi(words[i + 1], &last)) {
      continue;
    }
    for (int number = first + 1; number < last && number < first + 10; ++number) {
      words.push_back(absl::StrCat(number));
    }
  }
}

// Returns whether two versions are the same, or one is a part of the other: 2 and 2.5.
bool IsVersionOf(const std::string& one, const std::string& other) {
  return one == other || one == other.substr(0, other.find('.')) || other == one.substr(0, one.find('.'));
}

// Returns whether each of the `wanted` begins a word of `text`, or is a version that it names.
bool HasWords(absl::string_view text, absl::Span<const std::string> wanted) {
  std::vector<std::string> words = WordsOf(text);
  AddRanges(words);
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& want) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return absl::ascii_isdigit(want[0]) ? IsVersionOf(word, want) : absl::StartsWith(word, want);
    });
  });
}

Listed FindWords(absl::Span<const std::string> wanted) {
  Listed listed;
  for (const model::Family& family : model::Families()) {
    const std::string names = absl::StrCat(family.model_type, " ", NameOf(family), " ", family.models);
    if (HasWords(names, wanted)) listed.families.push_back(&family);
  }
  for (const model::NamedModel& preset : model::NamedModels()) {
    if (HasWords(preset.name, wanted)) listed.presets.push_back(&preset);
  }
  return listed;
}

// Those with the words of `name`, or else those with its first one; all if it is empty. UsageError if there
// are none.
absl::StatusOr<Listed> FindModels(const std::string& name) {
  constexpr size_t kShortest = 3;  // letters that say enough alone
  const std::vector<std::string> wanted = WordsOf(name);
  Listed listed = FindWords(wanted);
  if (listed.families.empty() && listed.presets.empty() && !wanted.empty() && wanted[0].size() >= kShortest) {
    listed = FindWords({wanted[0]});
  }
  if ((listed.families.empty() && listed.presets.empty()) || (wanted.empty() && !name.empty())) {
    return UsageError(absl::StrCat("no family or preset has ", recipe::QuoteToml(name),
                                   " in its name; `trainctl models` lists them all"));
  }
  return listed;
}

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

void PrintJson(const Listed& listed) {
  Json json = {{"schema", "trainctl.models.v1"}, {"families", Json::array()}, {"presets", Json::array()}};
  for (const model::Family* family : listed.families) json["families"].push_back(ToJson(*family));
  for (const model::NamedModel* preset : listed.presets) {
    json["presets"].push_back({{"name", preset->name},
                               {"parameters", model::NumParameters(preset->spec)},
                               {"active_parameters", model::NumActiveParameters(preset->spec)},
                               {"trained", model::WhyNotTrainable(preset->spec).empty()},
                               {"source", preset->source}});
  }
  std::puts(PrintableJson(json, 2).c_str());
}

void PrintTables(const Listed& listed, bool color) {
  TextTable trained({"model_type", "models", "differs from Llama in"}, {0, 1, 2});
  TextTable planned({"only planned", "models"}, {0, 1});
  bool any_trained = false;
  bool any_planned = false;
  for (const model::Family* family : listed.families) {
    if (model::IsTrained(*family)) {
      trained.Add({NameOf(*family), family->models, model::Differences(model::FeaturesOf(*family))});
      any_trained = true;
    } else {
      planned.Add({family->model_type, family->models});
      any_planned = true;
    }
  }
  TextTable presets({"preset", "parameters", ""}, {0, 2});
  for (const model::NamedModel* preset : listed.presets) {
    presets.Add({preset->name, FormatCount(model::NumParameters(preset->spec)),
                 model::WhyNotTrainable(preset->spec).empty() ? "" : "only planned"});
  }
  std::vector<const TextTable*> tables;
  if (any_trained) tables.push_back(&trained);
  if (any_planned) tables.push_back(&planned);
  if (!listed.presets.empty()) tables.push_back(&presets);
  for (const TextTable* table : tables) {
    if (table != tables[0]) std::puts("");
    table->Print(color);
  }
}

struct ModelsOptions {
  std::string name;
  bool markdown = false;
};

absl::StatusOr<ExitCode> Run(const ModelsOptions& options, const Output& output) {
  if (options.markdown && output.json) {
    return UsageError("--markdown and --json are two forms of the same output; use only one of them");
  }
  if (options.markdown && !options.name.empty()) {
    return UsageError("--markdown prints all models; leave out the name");
  }
  TRAINCTL_ASSIGN_OR_RETURN(const Listed listed, FindModels(options.name));
  if (output.json) {
    PrintJson(listed);
  } else if (options.markdown) {
    std::fputs(model::ModelsPage().c_str(), stdout);
  } else {
    PrintTables(listed, output.stdout_color);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddModels(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("models", "List the model families and presets");
  auto options = std::make_shared<ModelsOptions>();
  verb->add_option("NAME", options->name, "List only the models whose names contain this, such as qwen")
      ->type_name("");
  verb->add_flag("--markdown", options->markdown, "Print the tables as Markdown");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl models qwen");
  verb->callback(
      [&action, options] { action = [options](const Output& output) { return Run(*options, output); }; });
}

}  // namespace trainctl::cli
