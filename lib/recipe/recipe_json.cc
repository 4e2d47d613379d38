#include "recipe/recipe_json.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status.h"
#include "recipe/checks.h"
#include "recipe/derive.h"
#include "recipe/schema.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr absl::string_view kSchemaName = "trainctl.recipe.v1";
constexpr absl::string_view kSchemaFamily = "trainctl.recipe.v";

Json ToJsonValue(const Value& value) {
  struct Visitor {
    Json operator()(const Auto&) const { return "auto"; }
    Json operator()(absl::Duration duration) const { return DurationText(duration); }
    Json operator()(const StringMap& map) const { return map.empty() ? Json::object() : Json(map); }
    Json operator()(const std::vector<std::string>& list) const { return Json(list); }
    Json operator()(const std::vector<int64_t>& list) const { return Json(list); }
    Json operator()(const std::vector<double>& list) const { return Json(list); }
    Json operator()(const std::string& text) const { return text; }
    Json operator()(bool flag) const { return flag; }
    Json operator()(int64_t number) const { return number; }
    Json operator()(double number) const { return number; }
  };
  return std::visit(Visitor{}, value);
}

// The object that holds `name`'s last part, made on the way.
Json& ParentObject(Json& root, absl::string_view name, absl::string_view& leaf) {
  Json* object = &root;
  size_t dot = name.find('.');
  for (; dot != absl::string_view::npos; dot = name.find('.')) {
    object = &(*object)[std::string(name.substr(0, dot))];
    name.remove_prefix(dot + 1);
  }
  leaf = name;
  return *object;
}

RawValue ToRaw(const Json& json) {
  RawValue raw;
  if (json.is_boolean()) {
    raw.type = RawValue::Type::kBool;
    raw.bool_value = json.get<bool>();
  } else if (json.is_number_integer() && !(json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)) {
    raw.type = RawValue::Type::kInt;
    raw.int_value = json.get<int64_t>();
  } else if (json.is_number()) {
    raw.type = RawValue::Type::kDouble;
    raw.double_value = json.get<double>();
  } else if (json.is_string()) {
    raw.type = RawValue::Type::kString;
    raw.string_value = json.get<std::string>();
  } else if (json.is_array()) {
    raw.type = RawValue::Type::kList;
    for (const Json& item : json) raw.items.push_back(ToRaw(item));
  } else if (json.is_object()) {
    raw.type = RawValue::Type::kTable;
    for (const auto& [key, item] : json.items()) {
      raw.keys.push_back(key);
      raw.items.push_back(ToRaw(item));
    }
  } else {
    raw.type = RawValue::Type::kNull;
  }
  return raw;
}

class Reader {
 public:
  Reader(absl::string_view what, Recipe& recipe) : what_(what), recipe_(recipe) {}

  absl::Status ReadObject(const Json& object, const std::string& name, const std::string& path,
                          size_t index) {
    for (const auto& [key, item] : object.items()) {
      if (name.empty() && key == "schema") continue;
      TRAINCTL_RETURN_IF_ERROR(ReadItem(item, name.empty() ? key : absl::StrCat(name, ".", key),
                                        path.empty() ? key : absl::StrCat(path, ".", key), index));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadItem(const Json& item, const std::string& name, const std::string& path, size_t index) {
    const Schema& schema = GetSchema();
    const Field* field = schema.Find(name);
    if (schema.IsList(name) && item.is_array()) {
      Schema::ResizeList(recipe_, name, item.size());
      for (size_t i = 0; i < item.size(); ++i) {
        if (!item[i].is_object()) return Unexpected(path);
        TRAINCTL_RETURN_IF_ERROR(ReadObject(item[i], name + "[]", absl::StrCat(name, "[", i, "]"), i));
      }
      return absl::OkStatus();
    }
    if (item.is_object() && schema.IsTable(name)) return ReadObject(item, name, path, index);
    if (field == nullptr || !field->set) return Unexpected(path);
    const absl::StatusOr<Value> value = ConvertValue(*field, path, ToRaw(item), Spelling::kStored);
    if (!value.ok()) return BadDataError(absl::StrCat(what_, ": ", value.status().message()));
    field->set(recipe_, index, *value);
    return absl::OkStatus();
  }

  absl::Status Unexpected(const std::string& path) const {
    return BadDataError(absl::StrCat(what_, ": unexpected field '", path, "'"));
  }

  absl::string_view what_;
  Recipe& recipe_;
};

}  // namespace

std::string ToJson(const Recipe& recipe) {
  Json root = Json::object();
  root["schema"] = kSchemaName;
  for (const Field& field : GetSchema().fields()) {
    if (!field.get) continue;
    absl::string_view leaf;
    if (!field.in_list()) {
      const std::optional<Value> value = field.get(recipe, 0);
      if (value.has_value()) ParentObject(root, field.name, leaf)[std::string(leaf)] = ToJsonValue(*value);
      continue;
    }
    Json& list = ParentObject(root, field.list_name(), leaf)[std::string(leaf)];
    if (list.is_null()) list = Json::array();
    const std::string key = field.name.substr(field.name.rfind('.') + 1);
    for (size_t i = 0; i < Schema::ListSize(recipe, field.list_name()); ++i) {
      const std::optional<Value> value = field.get(recipe, i);
      if (value.has_value()) list[i][key] = ToJsonValue(*value);
    }
  }
  return FormatJson(root, 2) + "\n";
}

absl::StatusOr<Recipe> RecipeFromJson(absl::string_view json, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json root, ParseJson(json, what));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(root, "schema", what));
  if (schema != kSchemaName) {
    const bool is_recipe = absl::StartsWith(schema, kSchemaFamily);
    return BadDataError(absl::StrCat(
        what, ": schema '", schema, "' is ",
        is_recipe ? "newer than this program supports; use a newer trainctl" : "not a stored recipe"));
  }
  Recipe recipe;
  TRAINCTL_RETURN_IF_ERROR(Reader(what, recipe).ReadObject(root, "", "", 0));
  DeriveHoldout(recipe);
  Issues issues;
  CheckRecipe(recipe, {}, issues, issues);
  if (!issues.empty()) return BadDataError(absl::StrCat(what, ": ", issues.ToStatus(what).message()));
  return recipe;
}

}  // namespace trainctl::recipe
