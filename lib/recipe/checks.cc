#include "recipe/checks.h"

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "recipe/check_context.h"
#include "recipe/check_subjects.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

bool Matches(const Unsupported& unsupported, const Value& value, const Value& by_default) {
  if (unsupported.value == "*") return value != by_default;
  if (unsupported.value == ">1") {
    const auto* number = std::get_if<int64_t>(&value);
    return number != nullptr && *number > 1;
  }
  return value == Value(unsupported.value);
}

// What the schema knows and this version does not run, wherever it was stated.
void CheckSupport(CheckContext& context) {
  const Recipe defaults;
  for (const Field& field : GetSchema().fields()) {
    if (field.unsupported.empty() || !context.IsUsable({field.name})) continue;
    const std::optional<Value> value = field.get(context.recipe(), 0);
    if (!value.has_value()) continue;
    for (const Unsupported& unsupported : field.unsupported) {
      if (!Matches(unsupported, *value, *field.get(defaults, 0))) continue;
      context.Fail({field.name},
                   absl::StrCat(field.name, " = ", ToTomlText(field, *value), ": ", unsupported.why));
      context.MarkBad(field.name);
      break;
    }
  }
}

// Loading a file has its own words for these; a stored recipe may lack them.
void CheckRequired(CheckContext& context) {
  const Recipe& recipe = context.recipe();
  const auto lack = [&](absl::string_view path) {
    context.Lack({}, absl::StrCat(path, " is missing"));
    context.MarkBad(path);
  };
  if (recipe.train.steps < 1 && context.IsUsable({"train.steps"})) lack("train.steps");
  if (recipe.train.batch_sequences < 1 && context.IsUsable({"train.batch_sequences"})) {
    lack("train.batch_sequences");
  }
  if (recipe.data.train.empty() && !context.IsBadBelow("data.train")) lack("data.train");
}

void CheckRunName(CheckContext& context) {
  const std::string& name = context.recipe().run.name;
  if (!absl::StrContains(name, '/') && !absl::StartsWith(name, ".") && name.size() <= 100) return;
  context.Fail({"run.name"},
               absl::StrCat("run.name: ", QuoteToml(name),
                            " is not a valid folder name; use at most 100 bytes, no '/' and no leading '.'"));
}

void CheckOurs(CheckContext& context) {
  CheckSupport(context);
  CheckRequired(context);
  CheckTracedSteps(context);
  CheckModel(context);
  CheckSources(context);
  CheckEvaluation(context);
  CheckDevice(context);
  CheckLayout(context);
  CheckNumTokens(context);
  CheckNumerics(context);
  CheckOptimizer(context);
  CheckBackend(context);
}

// The estimates of other trainers know more models and layouts and look at the rest themselves.
void CheckWhatIf(CheckContext& context) {
  CheckWhatIfModel(context);
  CheckWhatIfDevice(context);
  CheckWhatIfOptimizer(context);
  CheckNumDevices(context);
  CheckNumTokens(context);
}

}  // namespace

void CheckRecipe(const Recipe& recipe, const Origins& origins, Issues& issues, Issues& missing,
                 Purpose purpose) {
  CheckContext context(recipe, origins, issues, missing);
  if (purpose == Purpose::kWhatIf) {
    CheckWhatIf(context);
  } else {
    CheckOurs(context);
  }
  CheckEnvironment(context);
  CheckInterface(context);
  CheckPrometheus(context);
  CheckRunName(context);
}

}  // namespace trainctl::recipe
