#include "recipe/resume.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "recipe/checks.h"
#include "recipe/derive.h"
#include "recipe/epochs.h"
#include "recipe/layers.h"
#include "recipe/notes.h"
#include "recipe/schedule_file.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr char kStored[] = "the stored recipe";
constexpr char kChanged[] = "the changes to the stored recipe";
constexpr char kOnlyBySet[] = "; only `trainctl resume --set` can change it in an existing run";

absl::string_view TableOf(const Field& field) {
  return absl::string_view(field.name).substr(0, field.name.find('.'));
}

// What `resume --set` may change. A table of which most may is named as a whole, with its exceptions.
std::string ChangeableNames() {
  std::vector<std::string> tables, singles;
  absl::string_view last_table;
  for (const Field& field : GetSchema().fields()) {
    const absl::string_view table = TableOf(field);
    if (table == last_table) continue;
    last_table = table;
    std::vector<std::string> can, cannot;
    for (const Field& other : GetSchema().fields()) {
      if (TableOf(other) != table) continue;
      const std::string name = other.name.substr(std::min(other.name.size(), table.size() + 1));
      (other.resume == Resume::kIdentity ? cannot : can).push_back(name);
    }
    if (can.size() > 2 * cannot.size()) {
      tables.push_back(absl::StrCat(table, ".*"));
      if (!cannot.empty()) absl::StrAppend(&tables.back(), " (but ", absl::StrJoin(cannot, ", "), ")");
    } else {
      for (const std::string& name : can) singles.push_back(absl::StrCat(table, ".", name));
    }
  }
  singles.insert(singles.end(), tables.begin(), tables.end());
  return absl::StrJoin(singles, ", ");
}

// ", which decides ..." of a field or table that stays as it was at the first launch.
std::string WhyFixed(absl::string_view path) {
  const auto is_in = [&](absl::string_view table) {
    return path == table || absl::StartsWith(path, absl::StrCat(table, "."));
  };
  if (is_in("data") || path == "run.seed" || absl::StartsWith(path, "train.batch_")) {
    return ", which determines the data of each step";
  }
  if (is_in("model")) return ", which determines the model";
  if (is_in("optimizer")) return ", which determines the optimizer's stored state";
  if (path == "train.precision" || path == "train.master_dtype" || path == "train.gradient_dtype" ||
      path == "run.attention" || path == "run.deterministic") {
    return ", which determines how every step is computed";
  }
  return "";
}

// The default of a field that is not shown if it is empty or does not apply (Row::OmitEmpty, Row::Where).
Value NotGiven(const Field& field) {
  if (field.allow_auto) return Value(Auto());
  Recipe fresh;
  fresh.data.train.resize(1);
  fresh.data.eval.resize(1);
  std::optional<Value> value = field.get_hidden ? field.get_hidden(fresh, 0) : std::nullopt;
  if (value.has_value()) return *std::move(value);
  return field.kind == Kind::kStringList ? Value(std::vector<std::string>()) : Value(std::string());
}

// "key=default" on a stored value: what was stored goes, the built-in default comes.
void TakeBack(const Draft& draft, Recipe& recipe) {
  for (const std::string& path : draft.taken_back()) {
    for (const Field& field : GetSchema().fields()) {
      if (field.resume == Resume::kIdentity || !field.set) continue;
      if (field.name == path || absl::StartsWith(field.name, path + ".")) {
        field.set(recipe, 0, field.get(Recipe(), 0).value_or(NotGiven(field)));
      } else if (field.kind == Kind::kStringMap && absl::StartsWith(path, field.name + ".")) {
        StringMap map = std::get<StringMap>(*field.get(recipe, 0));
        map.erase(path.substr(field.name.size() + 1));
        field.set(recipe, 0, Value(std::move(map)));
      }
    }
  }
  ApplyOptimizerDefaults(recipe, [&](absl::string_view field) {
    return !draft.taken_back().contains(std::string(field)) && !draft.taken_back().contains("optimizer");
  });
}

// A key taken back with "=default" leaves no entry, so identity is decided on the texts.
void RefuseFixedFields(absl::Span<const std::string> sets, Issues& issues) {
  for (const std::string& set : sets) {
    const std::string path = set.substr(0, std::min(set.find('='), set.find('[')));
    for (const Field& field : GetSchema().fields()) {
      const bool is_named = field.name == path || absl::StartsWith(path, field.name + ".") ||
                            absl::StartsWith(field.name, path + ".") ||
                            absl::StartsWith(field.name, path + "[");
      if (!is_named || field.resume != Resume::kIdentity || path.empty()) continue;
      issues.Add(absl::StrCat("--set ", set.substr(0, 100)),
                 absl::StrCat("a resumed run cannot change ", path, WhyFixed(path), "; it can change ",
                              ChangeableNames()));
      issues.MarkBad(field.name);
      break;
    }
  }
}

void ApplyEntries(const Draft& draft, LoadedRecipe& loaded) {
  Recipe& recipe = loaded.recipe;
  for (const auto& [path, entry] : draft.entries()) {
    loaded.origin[path] = entry.origin;
    if (entry.field->resume == Resume::kIdentity || !entry.field->set) continue;
    Value value = entry.value;
    if (entry.field->kind == Kind::kStringMap) {
      StringMap map = std::get<StringMap>(value);
      map.merge(StringMap(std::get<StringMap>(*entry.field->get(recipe, 0))));
      value = Value(std::move(map));
    }
    entry.field->set(recipe, entry.index, value);
  }
}

// What is set replaces the stored alternative.
void DropAlternatives(const Draft& draft, Recipe& recipe) {
  if (draft.Find("launch.ssh.hosts") != nullptr) recipe.launch.ssh.hosts_file.clear();
  if (draft.Find("launch.ssh.hosts_file") != nullptr) recipe.launch.ssh.hosts.clear();
  if (draft.Find("parallel.schedule") != nullptr) recipe.parallel.passes.clear();
  if (draft.Find("parallel.schedule_file") != nullptr || draft.Find("parallel.passes") != nullptr) {
    recipe.parallel.schedule.reset();
    if (draft.Find("parallel.virtual_stages") == nullptr) recipe.parallel.virtual_stages.reset();
  }
}

// Sets train.steps from the tokens or epochs that are set. `issues` has the mistakes so far.
absl::Status ResolveLength(const Draft& draft, const Access& access, const Issues& issues,
                           LoadedRecipe& loaded) {
  Recipe& recipe = loaded.recipe;
  if (const Entry* tokens = draft.Find("train.tokens"); tokens != nullptr) {
    recipe.train.steps = StepsForTokens(recipe, std::get<int64_t>(tokens->value));
    loaded.origin["train.steps"] = "--set (train.tokens)";
  }
  if (!recipe.train.epochs.has_value()) return absl::OkStatus();
  loaded.origin["train.steps"] = "--set (train.epochs)";
  // The data is counted only if the recipe is valid otherwise.
  Issues others = issues;
  others.MarkBad("train.steps");
  CheckRecipe(recipe, loaded.origin, others, others);
  TRAINCTL_RETURN_IF_ERROR(others.ToStatus(kChanged));
  return Annotate(ResolveEpochs(access, recipe), "--set");
}

void FillOrigins(LoadedRecipe& loaded) {
  for (const Field& field : GetSchema().fields()) {
    if (!field.get || field.kind == Kind::kStringMap) continue;
    const size_t count = field.in_list() ? Schema::ListSize(loaded.recipe, field.list_name()) : 1;
    for (size_t i = 0; i < count; ++i) loaded.origin.emplace(field.PathAt(i), kStored);
  }
}

}  // namespace

void FreezeForRun(Recipe& recipe) {
  if (!recipe.optimizer.decay_steps.has_value()) recipe.optimizer.decay_steps = recipe.train.steps;
}

absl::StatusOr<LoadedRecipe> ApplyResumeSets(const Recipe& stored, absl::Span<const std::string> sets,
                                             const Access& access) {
  LoadedRecipe loaded;
  loaded.recipe = stored;
  FreezeForRun(loaded.recipe);
  Recipe& recipe = loaded.recipe;
  Issues issues;
  Draft draft(access, issues);
  for (const char* list : {"data.train", "data.eval"}) {
    draft.SeedList(list, Schema::ListSize(stored, list), kStored);
  }
  draft.AddSets(sets);
  draft.ResolveDevice();
  RefuseFixedFields(sets, issues);
  TakeBack(draft, recipe);
  ApplyEntries(draft, loaded);
  DropAlternatives(draft, recipe);
  if (const absl::Status read = ReadScheduleFile(access, recipe); !read.ok())
    issues.Add("--set parallel.schedule_file", read.message());
  TRAINCTL_RETURN_IF_ERROR(ResolveLength(draft, access, issues, loaded));
  // An interval that nobody wrote gives way to the time that is given now.
  if (draft.Find("checkpoint.every") != nullptr && draft.Find("checkpoint.every_steps") == nullptr &&
      stored.checkpoint.every_steps == DefaultSaveInterval(stored)) {
    recipe.checkpoint.every_steps.reset();
  }
  ResolveCheckpoint(recipe);
  FreezeForRun(recipe);  // optimizer.decay_steps = "auto": the end as it is now
  CheckRecipe(recipe, loaded.origin, issues, issues);
  TRAINCTL_RETURN_IF_ERROR(issues.ToStatus(kChanged));
  loaded.notes = FindNotes(recipe, loaded.origin);
  FillOrigins(loaded);
  return loaded;
}

std::vector<std::string> RecordedChanges(const Recipe& before, const Recipe& after) {
  Recipe frozen = before;
  FreezeForRun(frozen);
  std::vector<std::string> changes;
  for (const Field& field : GetSchema().fields()) {
    if (field.resume != Resume::kBySet && field.name != "train.steps") continue;
    const std::optional<Value> was = field.get(frozen, 0), is = field.get(after, 0);
    if (was == is || !was.has_value() || !is.has_value()) continue;
    changes.push_back(
        absl::StrCat(field.name, " is ", ToTomlText(field, *is), " and was ", ToTomlText(field, *was)));
  }
  return changes;
}

absl::StatusOr<Continuation> ContinueAs(const Recipe& stored, const LoadedRecipe& now) {
  Continuation next;
  Recipe& recipe = next.recipe;
  recipe = stored;
  FreezeForRun(recipe);
  Issues issues;
  for (const Field& field : GetSchema().fields()) {
    // The run's location is known, and its folder has its name.
    if (!field.get || !field.set || field.name == "run.root" || field.name == "run.name") continue;
    const size_t had = field.in_list() ? Schema::ListSize(stored, field.list_name()) : 1;
    const size_t has = field.in_list() ? Schema::ListSize(now.recipe, field.list_name()) : 1;
    for (size_t i = 0; i < std::max(had, has); ++i) {
      const std::optional<Value> before = i < had ? field.get(recipe, i) : std::nullopt;
      const std::optional<Value> after = i < has ? field.get(now.recipe, i) : std::nullopt;
      if (before == after) continue;
      const auto text = [&](const std::optional<Value>& value) {
        return value.has_value() ? ToTomlText(field, *value) : std::string("unset");
      };
      if (field.resume == Resume::kFree) {
        field.set(recipe, i, after.value_or(NotGiven(field)));
        next.changes.push_back(absl::StrCat(field.PathAt(i), " is ", text(after), " and was ", text(before)));
        continue;
      }
      // Of what makes the run what it is, "auto" stays what it became at the first launch.
      if (after.has_value() && (*after == Value(Auto()) || *after == Value(std::string("auto")))) continue;
      const bool by_set = field.resume == Resume::kBySet && after.has_value();
      issues.Add(field.PathAt(i),
                 absl::StrCat("is ", text(after), " and was ", text(before), by_set ? kOnlyBySet : ""));
    }
  }
  TRAINCTL_RETURN_IF_ERROR(issues.ToStatus("the recipe with which the run would continue"));
  ResolveCheckpoint(recipe);
  CheckRecipe(recipe, now.origin, issues, issues);
  TRAINCTL_RETURN_IF_ERROR(issues.ToStatus("the recipe with which the run would continue"));
  return next;
}

bool DecidesLayout(absl::string_view field) {
  if (field == "parallel.prefetch") return false;
  return absl::StartsWith(field, "parallel") || field == "train.micro_batch" || field == "cluster.nodes" ||
         field == "cluster.devices_per_node" || field == "cluster.device" || field == "cluster";
}

bool AsksForSameLayout(const Recipe& a, const Recipe& b) {
  const auto fields = GetSchema().fields();
  return std::all_of(fields.begin(), fields.end(), [&](const Field& field) {
    return !DecidesLayout(field.name) || !field.get || field.get(a, 0) == field.get(b, 0);
  });
}

}  // namespace trainctl::recipe
