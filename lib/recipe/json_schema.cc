#include "recipe/json_schema.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/json.h"
#include "recipe/describe.h"
#include "recipe/schema.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// As base/units.h reads them: digits with "_" between them and one point.
constexpr char kNumber[] = R"([0-9]+(_[0-9]+)*(\.[0-9]+(_[0-9]+)*)?)";

std::string Pattern(absl::string_view suffixes) { return absl::StrCat("^", kNumber, " *", suffixes, "$"); }

// Editors show whole numbers for whole bounds.
Json Number(double value) {
  if (value == std::floor(value) && std::abs(value) <= 9e15) return static_cast<int64_t>(value);
  return value;
}

Json Ranged(const char* type, const Field& field) {
  Json json = {{"type", type}};
  if (field.min_value > -kInfinity) {
    json[field.above_min ? "exclusiveMinimum" : "minimum"] = Number(field.min_value);
  }
  if (field.max_value < kInfinity) {
    json[field.below_max ? "exclusiveMaximum" : "maximum"] = Number(field.max_value);
  }
  return json;
}

Json Text(const Field& field) {
  if (!field.choices.empty()) return {{"enum", field.choices}};
  return {{"type", "string"}, {"minLength", 1}};
}

Json List(Json items, const Field& field) {
  Json json = {{"type", "array"}, {"items", std::move(items)}};
  if (field.list_length > 0) json["minItems"] = json["maxItems"] = field.list_length;
  if (field.never_empty) json["minItems"] = 1;
  if (!field.takes_one) return json;
  return {{"anyOf", {json["items"], json}}};
}

Json TypeOf(const Field& field) {
  switch (field.kind) {
    case Kind::kBool:
      return {{"type", "boolean"}};
    case Kind::kInt:
      return Ranged("integer", field);
    case Kind::kCount:
      return {{"anyOf", {Ranged("integer", field), {{"type", "string"}, {"pattern", Pattern("[KMBT]?")}}}}};
    case Kind::kBytes:
      return {{"type", "string"}, {"pattern", Pattern("[KMGT]i?B")}};
    case Kind::kBandwidth:
      return {{"type", "string"}, {"pattern", Pattern("[KMGT]i?[Bb]/s")}};
    case Kind::kDuration:
      return {{"type", "string"}, {"pattern", Pattern("(ms|s|m|h)")}};
    case Kind::kDouble:
      return Ranged("number", field);
    case Kind::kString:
    case Kind::kPath:
      return Text(field);
    case Kind::kIntList:
      return List(Ranged("integer", field), field);
    case Kind::kDoubleList:
      return List(Ranged("number", field), field);
    case Kind::kStringList:
      return List(Text(field), field);
    case Kind::kGlobList: {
      Json list = List(Text(field), field);
      list["minItems"] = 1;  // of nothing there is nothing to train on
      return list;
    }
    case Kind::kStringMap:
      return {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}};
  }
  return Json::object();
}

// "auto" belongs to the words of a field that has words, and is an alternative to the other types.
Json WithAuto(Json type, const Field& field) {
  if (!field.allow_auto) return type;
  if (type.contains("enum")) {
    type["enum"].push_back("auto");
    return type;
  }
  if (type.contains("anyOf")) {
    type["anyOf"].push_back({{"const", "auto"}});
    return type;
  }
  return {{"anyOf", {std::move(type), {{"const", "auto"}}}}};
}

// A default that is a value, spelled as a recipe spells it.
std::optional<Json> DefaultValue(const Field& field) {
  if (field.is_required || !field.default_text.empty() || !field.get) return std::nullopt;
  Recipe recipe;
  if (field.in_list()) Schema::ResizeList(recipe, field.list_name(), 1);
  const std::optional<Value> value = field.get(recipe, 0);
  if (!value.has_value()) return std::nullopt;
  struct Visitor {
    const Field& field;
    Json operator()(const Auto&) const { return "auto"; }
    Json operator()(int64_t number) const {
      if (field.kind != Kind::kBytes && field.kind != Kind::kBandwidth) return number;
      const std::string quoted = ToTomlText(field, Value(number));
      return quoted.substr(1, quoted.size() - 2);
    }
    Json operator()(double number) const { return Number(number); }
    Json operator()(absl::Duration duration) const { return DurationText(duration); }
    Json operator()(const StringMap&) const { return Json::object(); }
    Json operator()(bool flag) const { return flag; }
    Json operator()(const std::string& text) const { return text; }
    Json operator()(const std::vector<int64_t>& list) const { return list; }
    Json operator()(const std::vector<double>& list) const { return list; }
    Json operator()(const std::vector<std::string>& list) const { return list; }
  };
  return std::visit(Visitor{field}, *value);
}

std::string Description(const Field& field) {
  std::string text = field.doc;
  if (!field.unit.empty()) absl::StrAppend(&text, " Unit: ", field.unit, ".");
  absl::StrAppend(&text, "\n\nType: ", Describe(field), ". Default: ", DefaultText(field), ".");
  for (const Unsupported& unsupported : field.unsupported) {
    absl::StrAppend(&text, "\n\n", UnsupportedText(unsupported));
  }
  if (field.resume != Resume::kIdentity) absl::StrAppend(&text, "\n\n`trainctl resume --set` can change it.");
  return text;
}

Json Property(const Field& field) {
  Json json = {{"description", Description(field)}};
  json.update(WithAuto(TypeOf(field), field));
  if (std::optional<Json> value = DefaultValue(field)) json["default"] = *std::move(value);
  return json;
}

Json Table() { return {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}}; }

// The table in which `name` has its leaf, made on the way: "data.train[].files" is a property of the items of
// "data.train".
Json& TableFor(Json& root, absl::string_view name, std::string& leaf) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  Json* table = &root;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const bool is_list = absl::EndsWith(parts[i], "[]");
    const std::string key = is_list ? parts[i].substr(0, parts[i].size() - 2) : parts[i];
    Json& slot = (*table)["properties"][key];
    if (is_list) {
      if (slot.is_null()) slot = {{"type", "array"}, {"items", Table()}};
      table = &slot["items"];
    } else if (slot.is_null()) {
      slot = Table();
      table = &slot;
    } else if (slot.contains("enum")) {
      // A word or a table, such as model.rope_scaling.
      Json word = {{"enum", slot["enum"]}};
      slot.erase("enum");
      slot["anyOf"] = Json::array({std::move(word), Table()});
      table = &slot["anyOf"][1];
    } else {
      table = slot.contains("anyOf") ? &slot["anyOf"][1] : &slot;
    }
  }
  leaf = parts.back();
  return *table;
}

// Fields of one table that exclude each other.
void AddExclusions(Json& root) {
  const absl::Span<const Field> fields = GetSchema().fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    for (size_t j = i + 1; j < fields.size(); ++j) {
      const Field& a = fields[i];
      const Field& b = fields[j];
      if (a.group.empty() || a.group != b.group || a.alternative == b.alternative) continue;
      std::string leaf_a, leaf_b;
      Json& table = TableFor(root, a.name, leaf_a);
      if (&TableFor(root, b.name, leaf_b) != &table) continue;
      table["allOf"].push_back({{"not", {{"required", {leaf_a, leaf_b}}}}});
    }
  }
}

}  // namespace

std::string JsonSchema() {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "trainctl recipe"},
               {"description",
                "What to train, on which data and machines, how, and for how long. `trainctl recipe explain "
                "KEY` prints the same descriptions."}};
  root.update(Table());
  const Json path = {{"type", "string"}, {"minLength", 1}};
  root["properties"]["extends"] = {
      {"description",
       "The recipe or list of recipes on which this one builds. Paths are relative to this file."},
      {"anyOf", {path, {{"type", "array"}, {"items", path}, {"minItems", 1}}}}};
  for (const Field& field : GetSchema().fields()) {
    std::string leaf;
    Json& table = TableFor(root, field.name, leaf);
    table["properties"][leaf] = Property(field);
    if (field.is_required) table["required"].push_back(leaf);
  }
  AddExclusions(root);
  return FormatJson(root, 2) + "\n";
}

}  // namespace trainctl::recipe
