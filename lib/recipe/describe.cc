#include "recipe/describe.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/names.h"
#include "base/status.h"
#include "recipe/foreign_words.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr size_t kLongestKey = 100;
constexpr size_t kNamesOffered = 3;

// "data.train[0].files" and "data.train.files" as the schema has it.
std::string SchemaName(absl::string_view typed) {
  std::string name;
  for (size_t i = 0; i < typed.size(); ++i) {
    name += typed[i];
    if (typed[i] != '[') continue;
    while (i + 1 < typed.size() && absl::ascii_isdigit(static_cast<unsigned char>(typed[i + 1]))) ++i;
  }
  for (const char* list : {"data.train", "data.eval"}) {
    const std::string prefix = absl::StrCat(list, ".");
    if (absl::StartsWith(name, prefix)) name = absl::StrCat(list, "[].", name.substr(prefix.size()));
  }
  return name;
}

absl::string_view Leaf(absl::string_view name) { return name.substr(name.rfind('.') + 1); }

// The fields that `key` stands for; `is_table` when it is the table that they are in.
absl::StatusOr<std::vector<const Field*>> Find(absl::string_view key, bool& is_table) {
  const std::string name = SchemaName(absl::StripAsciiWhitespace(key));
  const Schema& schema = GetSchema();
  std::vector<const Field*> fields;
  if (const Field* field = schema.Find(name)) fields.push_back(field);
  // model.rope_scaling is both a field and a table.
  const std::string inside = absl::StrCat(name, schema.IsList(name) ? "[]." : ".");
  for (const Field& field : schema.fields()) {
    if (absl::StartsWith(field.name, inside)) fields.push_back(&field);
  }
  is_table = fields.size() > 1 || (fields.size() == 1 && fields[0]->name != name);
  if (!fields.empty()) return fields;
  for (const Field& field : schema.fields()) {
    if (!name.empty() && Leaf(field.name) == name) fields.push_back(&field);
  }
  if (!fields.empty()) return fields;
  const std::string refusal =
      absl::StrCat("recipes have no key ", QuoteToml(std::string(key.substr(0, kLongestKey))), "; ");
  const ForeignWord* const foreign = FindForeign(name, ForeignKeys());
  if (foreign != nullptr && foreign->advice[0] != '\0') return UsageError(refusal + foreign->advice);
  const std::vector<std::string> near =
      foreign == nullptr ? NearestNames(name, kNamesOffered) : std::vector<std::string>{foreign->ours};
  return UsageError(absl::StrCat(
      refusal, near.empty() ? "docs/reference/recipe.md and `trainctl recipe schema` list all keys"
                            : absl::StrCat("did you mean ", absl::StrJoin(near, ", "), "?")));
}

std::vector<std::string> Excluded(const Field& field) {
  std::vector<std::string> names;
  for (const Field& other : GetSchema().fields()) {
    if (field.group.empty() || other.group != field.group || other.alternative == field.alternative) continue;
    names.push_back(other.name);
  }
  return names;
}

std::string Meaning(const Field& field) {
  return field.unit.empty() ? field.doc : absl::StrCat(field.doc, " Unit: ", field.unit, ".");
}

std::string ResumeText(const Field& field) {
  switch (field.resume) {
    case Resume::kIdentity:
      return "fixed for the whole run";
    case Resume::kBySet:
      return "only `trainctl resume --set` can change it, and the change is recorded with the run";
    case Resume::kFree:
      return "`trainctl resume --set` can change it";
  }
  return "";
}

// A sentence for each reason, with all values that have it.
std::vector<std::string> UnsupportedTexts(const Field& field) {
  std::vector<std::string> texts;
  std::set<std::string> reasons;
  for (const Unsupported& first : field.unsupported) {
    if (!reasons.insert(first.why).second) continue;
    std::vector<std::string> values;
    for (const Unsupported& other : field.unsupported) {
      if (other.why == first.why) values.push_back(absl::StrCat("`", other.value, "`"));
    }
    const std::string last = values.back();
    values.pop_back();
    texts.push_back(values.empty() ? UnsupportedText(first)
                                   : absl::StrCat(absl::StrJoin(values, ", "), " and ", last,
                                                  " are not supported yet: ", first.why, "."));
  }
  return texts;
}

std::string ExplainField(const Field& field) {
  std::string text = absl::StrCat(field.name, "\n  ", Meaning(field), "\n\n  type      ", Describe(field),
                                  "\n  default   ", DefaultText(field), "\n");
  const std::vector<std::string> excluded = Excluded(field);
  if (!excluded.empty()) absl::StrAppend(&text, "  excludes  ", absl::StrJoin(excluded, ", "), "\n");
  for (const std::string& sentence : UnsupportedTexts(field)) {
    absl::StrAppend(&text, "  not yet   ", sentence, "\n");
  }
  absl::StrAppend(&text, "  resume    ", ResumeText(field), "\n");
  return text;
}

std::string ExplainTable(absl::string_view key, const std::vector<const Field*>& fields) {
  size_t width = 0;
  for (const Field* field : fields) width = std::max(width, field->name.size());
  std::string text = absl::StrCat(key, " has these keys:\n");
  for (const Field* field : fields) {
    const std::string pad(width - field->name.size(), ' ');
    absl::StrAppend(&text, "  ", field->name, pad, "  ", Meaning(*field), "\n");
  }
  return text;
}

}  // namespace

std::string DefaultText(const Field& field) {
  if (field.is_required) return "required";
  if (!field.default_text.empty()) return field.default_text;
  Recipe recipe;
  if (field.in_list()) Schema::ResizeList(recipe, field.list_name(), 1);
  if (!field.get) return "none";
  const std::optional<Value> value = field.get(recipe, 0);
  return value.has_value() ? absl::StrCat("`", ToTomlText(field, *value), "`") : "none";
}

std::string UnsupportedText(const Unsupported& unsupported) {
  const std::string value = unsupported.value == "*"    ? "Anything but the default"
                            : unsupported.value == ">1" ? "More than 1"
                                                        : absl::StrCat("`", unsupported.value, "`");
  return absl::StrCat(value, " is not supported yet: ", unsupported.why, ".");
}

absl::StatusOr<std::string> Explain(absl::string_view key) {
  bool is_table = false;
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<const Field*> fields, Find(key, is_table));
  if (is_table) return ExplainTable(absl::StripAsciiWhitespace(key), fields);
  return absl::StrJoin(fields, "\n",
                       [](std::string* out, const Field* field) { out->append(ExplainField(*field)); });
}

absl::StatusOr<std::string> ExplainJson(absl::string_view key) {
  bool is_table = false;
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<const Field*> fields, Find(key, is_table));
  Json json = {
      {"schema", "trainctl.recipe-explain.v1"}, {"key", std::string(key)}, {"fields", Json::array()}};
  for (const Field* field : fields) {
    Json entry = {{"name", field->name},
                  {"meaning", field->doc},
                  {"unit", field->unit},
                  {"type", Describe(*field)},
                  {"default", DefaultText(*field)},
                  {"excludes", Excluded(*field)},
                  {"not_yet", Json::array()},
                  {"resume", field->resume != Resume::kIdentity},
                  {"or_resume", field->resume == Resume::kFree}};
    for (const Unsupported& unsupported : field->unsupported) {
      entry["not_yet"].push_back(UnsupportedText(unsupported));
    }
    json["fields"].push_back(std::move(entry));
  }
  return FormatJson(json, 2) + "\n";
}

std::vector<std::string> NearestNames(absl::string_view typed, size_t max_names) {
  // A key far longer than every name is near none of them, and would only cost time.
  if (typed.empty() || typed.size() > kLongestKey) return {};
  std::vector<std::pair<int, std::string>> near;
  const auto consider = [&](const std::string& name) {
    const absl::string_view leaf = Leaf(name);
    // The right key in the wrong table comes first, then a slip in the whole name, then one in a bare key.
    int distance = EditDistance(typed, name);
    if (leaf == Leaf(typed)) distance = 0;
    if (typed.find('.') == absl::string_view::npos) distance = std::min(distance, EditDistance(typed, leaf));
    if (distance > std::max<int>(2, static_cast<int>(Leaf(typed).size()) / 3)) return;
    const std::pair<int, std::string> entry = {distance, name};
    if (std::find(near.begin(), near.end(), entry) == near.end()) near.push_back(entry);
  };
  for (const Field& field : GetSchema().fields()) {
    for (size_t dot = field.name.find('.'); dot != std::string::npos; dot = field.name.find('.', dot + 1)) {
      consider(field.name.substr(0, dot));
    }
    consider(field.name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (size_t i = 0; i < near.size() && i < max_names; ++i) names.push_back(near[i].second);
  return names;
}

}  // namespace trainctl::recipe
