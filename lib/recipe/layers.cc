#include "recipe/layers.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/folder_paths.h"
#include "base/status.h"
#include "recipe/foreign_words.h"
#include "recipe/toml_reader.h"
#include "recipe/url.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr int kMaxFiles = 64;
constexpr int64_t kRecipeVersion = 1;

std::string ParentOf(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

// How a base file is called in messages: relative as its child states it.
std::string Sibling(const std::string& path, const std::string& relative) {
  return (std::filesystem::path(ParentOf(path)) / relative).lexically_normal().string();
}

std::string JoinName(const std::string& table, const std::string& key) {
  return table.empty() ? key : absl::StrCat(table, ".", key);
}

// Text from outside that fits a message.
std::string OneLine(const std::string& text) {
  std::string line = text.size() <= 100 ? text : absl::StrCat(text.substr(0, 100), "...");
  const auto is_control = [](unsigned char c) { return absl::ascii_iscntrl(c); };
  const bool is_plain = IsValidUtf8(line) && std::none_of(line.begin(), line.end(), is_control);
  return is_plain ? line : absl::CHexEscape(line);
}

// The keys of a table, for an unknown key that is near none.
std::string KeysOf(const std::string& table) {
  std::vector<std::string> keys;
  const std::string prefix = table.empty() ? "" : absl::StrCat(table, ".");
  for (const Field& field : GetSchema().fields()) {
    if (!absl::StartsWith(field.name, prefix)) continue;
    std::string key = field.name.substr(prefix.size());
    key = key.substr(0, key.find_first_of(".["));
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return absl::StrJoin(keys, " ");
}

// The same in words, of the nearest table above that there is: "[train] has steps tokens".
std::string WhatThereIs(std::string table) {
  while (!table.empty() && KeysOf(table).empty()) {
    const size_t dot = table.rfind('.');
    table = dot == std::string::npos ? "" : table.substr(0, dot);
  }
  return absl::StrCat(table.empty() ? "a recipe" : absl::StrCat("[", table, "]"), " has ", KeysOf(table));
}

// The schema's "data.train[].weight" as it is written: with the entry of `path`, or the first.
std::string WithIndexOf(absl::string_view path, const std::string& name) {
  const size_t open = path.find('['), close = path.find(']');
  const bool has_index = open != absl::string_view::npos && close != absl::string_view::npos && open < close;
  return absl::StrReplaceAll(name, {{"[]", has_index ? path.substr(open, close - open + 1) : "[0]"}});
}

// "data.train[2].weight" as the schema's name "data.train[].weight" and 2.
struct SetPath {
  std::string name;
  size_t index = 0;
  bool has_index = false;
};

absl::StatusOr<SetPath> ParseSetPath(absl::string_view path) {
  SetPath result;
  const size_t open = path.find('[');
  if (open == absl::string_view::npos) {
    result.name = std::string(path);
    return result;
  }
  const size_t close = path.find(']', open);
  const absl::string_view digits =
      close == absl::string_view::npos ? "" : path.substr(open + 1, close - open - 1);
  uint32_t index = 0;
  if (digits.empty() || digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &index)) {
    return UsageError(absl::StrCat("\"", path, "\" needs an index such as [0]"));
  }
  result.index = index;
  result.has_index = true;
  result.name = absl::StrCat(path.substr(0, open), "[]", path.substr(close + 1));
  return result;
}

// The value of a --set. Text needs no quotes; what is not TOML ("8M", "30m", "auto") is a string that the
// type judges.
absl::StatusOr<RawValue> ReadSetValue(const std::string& value, bool is_text, bool is_table,
                                      const std::string& where) {
  const bool is_quoted = absl::StartsWith(value, "\"") || absl::StartsWith(value, "'");
  if (is_quoted || !is_text || (is_table && absl::StartsWith(value, "{"))) {
    absl::StatusOr<RawValue> toml = ParseTomlValue(value, where);
    const bool must_parse = is_quoted || absl::StartsWith(value, "[") || absl::StartsWith(value, "{");
    if (toml.ok() || must_parse) return toml;
  }
  RawValue raw;
  raw.type = RawValue::Type::kString;
  raw.string_value = value;
  raw.where = where;
  return raw;
}

constexpr char kDevice[] = "cluster.device";
constexpr char kAutoDevice[] = "auto";

}  // namespace

void Draft::AddFile(const std::string& path, absl::string_view text) {
  const absl::StatusOr<RawValue> table = ParseToml(text, path);
  if (!table.ok()) {
    issues_.Add(table.status());
    has_unread_file_ = true;
    return;
  }
  reading_.push_back(AbsolutePath(path, access_.working_dir));
  AddParsedFile(path, *table);
  reading_.pop_back();
}

void Draft::AddParsedFile(const std::string& path, const RawValue& table) {
  if (!CheckVersion(table)) {
    has_unread_file_ = true;
    return;
  }
  num_keys_ += table.keys.size();
  AddExtends(path, table);
  this_layer_.clear();
  base_dir_ = ParentOf(reading_.back());
  WalkTable(table, "", "", 0);
}

bool Draft::CheckVersion(const RawValue& table) {
  for (size_t i = 0; i < table.keys.size(); ++i) {
    const RawValue& item = table.items[i];
    if (table.keys[i] != "recipe_version" || item.type != RawValue::Type::kInt) continue;
    if (item.int_value <= kRecipeVersion) continue;
    // Other errors would only be about keys that the newer version knows.
    issues_.Add(item.where,
                absl::StrCat("recipe_version ", item.int_value, " is newer than this program supports (",
                             kRecipeVersion, "); use a newer trainctl"));
    return false;
  }
  return true;
}

void Draft::AddExtends(const std::string& path, const RawValue& table) {
  const auto key = std::find(table.keys.begin(), table.keys.end(), "extends");
  if (key == table.keys.end()) return;
  const RawValue& item = table.items[static_cast<size_t>(key - table.keys.begin())];
  std::vector<RawValue> bases;
  if (item.type == RawValue::Type::kString) bases.push_back(item);
  if (item.type == RawValue::Type::kList) bases = item.items;
  const bool all_strings = std::all_of(bases.begin(), bases.end(), [](const RawValue& base) {
    return base.type == RawValue::Type::kString && !base.string_value.empty();
  });
  if (bases.empty() || !all_strings) {
    issues_.Add(item.where, "extends: expected a path or a list of paths");
    has_unread_file_ = true;
    return;
  }
  for (const RawValue& base : bases) {
    const absl::StatusOr<std::string> expanded = ExpandVariables(base.string_value, access_.environment);
    if (!expanded.ok()) {
      issues_.Add(item.where, absl::StrCat("extends: ", expanded.status().message()));
      has_unread_file_ = true;
      continue;
    }
    const std::string base_path = Sibling(path, *expanded);
    const std::string absolute = AbsolutePath(base_path, access_.working_dir);
    if (std::find(reading_.begin(), reading_.end(), absolute) != reading_.end()) {
      issues_.Add(item.where, absl::StrCat("extends ", base_path, ", which in turn extends this file"));
      has_unread_file_ = true;
    } else if (++num_files_ > kMaxFiles) {
      issues_.Add(item.where, absl::StrCat("extends more than ", kMaxFiles, " files"));
      return;
    } else {
      const absl::StatusOr<std::string> text = access_.read_file(base_path);
      if (text.ok()) {
        AddFile(base_path, *text);
      } else {
        issues_.Add(item.where, absl::StrCat("extends: ", text.status().message()));
        has_unread_file_ = true;
      }
    }
  }
}

void Draft::WalkTable(const RawValue& table, const std::string& name, const std::string& path, size_t index) {
  for (size_t i = 0; i < table.keys.size(); ++i) {
    const std::string& key = table.keys[i];
    if (name.empty() && key == "extends" && !is_set_) continue;
    WalkItem(table.items[i], JoinName(name, key), JoinName(path, key), index);
  }
}

void Draft::WalkItem(const RawValue& item, const std::string& name, const std::string& path, size_t index) {
  const Schema& schema = GetSchema();
  const Field* field = schema.Find(name);
  const bool is_table = item.type == RawValue::Type::kTable;
  if (schema.IsList(name)) {
    WalkList(item, name);
  } else if (field != nullptr && field->kind == Kind::kStringMap) {
    WalkMap(*field, item);
  } else if (is_table && schema.IsTable(name)) {
    WalkTable(item, name, path, index);
  } else if (field != nullptr) {
    Assign(*field, path, index, "", item);
  } else if (schema.IsTable(name)) {
    issues_.Add(item.where, absl::StrCat(path, ": expected a table, got ", TypeName(item.type)));
  } else {
    Unknown(item, name, path);
  }
}

void Draft::WalkList(const RawValue& list, const std::string& name) {
  const bool all_tables = std::all_of(list.items.begin(), list.items.end(), [](const RawValue& item) {
    return item.type == RawValue::Type::kTable;
  });
  if (list.type != RawValue::Type::kList || !all_tables) {
    issues_.Add(list.where, absl::StrCat(name, ": expected a list of tables ([[", name, "]])"));
    issues_.MarkBad(name);
    return;
  }
  Erase(absl::StrCat(name, "["));
  List& state = lists_[name] = {};
  for (const RawValue& item : list.items) state.where.push_back(item.where);
  for (size_t i = 0; i < list.items.size(); ++i) {
    WalkTable(list.items[i], absl::StrCat(name, "[]"), absl::StrCat(name, "[", i, "]"), i);
  }
}

void Draft::WalkMap(const Field& field, const RawValue& item) {
  if (item.type != RawValue::Type::kTable) {
    issues_.Add(item.where,
                absl::StrCat(field.name, ": expected a table of strings, got ", TypeName(item.type)));
    return;
  }
  for (size_t i = 0; i < item.keys.size(); ++i) {
    RawValue one;
    one.keys = {item.keys[i]};
    one.items = {item.items[i]};
    one.where = item.items[i].where;
    Assign(field, JoinName(field.name, item.keys[i]), 0, item.keys[i], one);
  }
}

void Draft::Unknown(const RawValue& item, const std::string& name, const std::string& path) {
  const size_t dot = name.rfind('.');
  const ForeignWord* const foreign = FindForeign(name, ForeignKeys());
  const std::string near = foreign == nullptr ? NearestName(name) : foreign->ours;
  const std::string table = dot == std::string::npos ? "" : name.substr(0, dot);
  const Field* field = GetSchema().Find(table);
  std::string hint;
  const bool is_value = item.type != RawValue::Type::kTable && item.type != RawValue::Type::kList;
  if (!near.empty() && is_value && GetSchema().Find(near) == nullptr) {
    hint = absl::StrCat(near, " is a table and cannot have a value; its keys are ", KeysOf(near));
  } else if (!near.empty()) {
    hint = absl::StrCat("did you mean ", WithIndexOf(path, near), "?");
    issues_.MarkBad(near);
  } else if (foreign != nullptr) {
    hint = foreign->advice;
  } else if (field != nullptr) {
    hint = absl::StrCat(table, " is ", Describe(*field));
  } else {
    hint = WhatThereIs(table);
  }
  issues_.Add(item.where, absl::StrCat("unknown key ", OneLine(path), "; ", hint));
}

void Draft::ResolveDevice() {
  const auto entry = entries_.find(kDevice);
  if (entry == entries_.end() || entry->second.value != Value(std::string(kAutoDevice))) return;
  const std::string where = entry->second.origin;
  absl::StatusOr<FoundDevice> found = access_.find_device ? access_.find_device() : FoundDevice();
  absl::StatusOr<Value> value = Value(Auto());
  if (found.ok()) {
    RawValue raw;
    raw.type = RawValue::Type::kString;
    raw.string_value = found->device;
    raw.where = where;
    value = ConvertValue(*entry->second.field, kDevice, raw, Spelling::kWritten);
  } else {
    value = Annotate(found.status(), absl::StrCat(kDevice, " = \"", kAutoDevice, "\""));
  }
  if (!value.ok()) {
    entries_.erase(entry);
    issues_.Add(where, value.status().message());
    issues_.MarkBad(kDevice);
    return;
  }
  entry->second.value = *std::move(value);
  found_device_ = *std::move(found);
  const auto take_up = [&](const std::string& path, int64_t number) {
    if (number == 0 || entries_.count(path) > 0) return;
    entries_[path] = {GetSchema().Find(path), 0, "", Value(number),
                      absl::StrCat(kDevice, " = \"", kAutoDevice, "\"")};
  };
  take_up("cluster.devices_per_node", found_device_->devices_per_node);
  take_up("cluster.memory", found_device_->memory_bytes);
}

void Draft::Assign(const Field& field, const std::string& path, size_t index, const std::string& key,
                   const RawValue& raw) {
  ClearExcluded(field, index, path, raw.where);
  this_layer_[path] = raw.where;
  taken_back_.erase(path);
  if (field.name == kDevice && raw.type == RawValue::Type::kString && raw.string_value == kAutoDevice) {
    entries_[path] = {&field, index, key, Value(raw.string_value), is_set_ ? "--set" : raw.where};
    return;  // until all layers are read
  }
  absl::StatusOr<Value> value = ConvertValue(field, key.empty() ? path : field.name, raw, Spelling::kWritten);
  if (value.ok()) {
    value = ResolvePaths(field, *std::move(value));
    if (!value.ok()) value = Annotate(value.status(), path);
  }
  if (!value.ok()) {
    // A later layer may state it rightly; the error stays, the earlier value would only confuse.
    entries_.erase(path);
    issues_.Add(raw.where, value.status().message());
    issues_.MarkBad(path);
    return;
  }
  entries_[path] = {&field, index, key, *std::move(value), is_set_ ? "--set" : raw.where};
}

void Draft::ClearExcluded(const Field& field, size_t index, const std::string& path,
                          const std::string& where) {
  if (field.group.empty()) return;
  for (const Field& other : GetSchema().fields()) {
    if (other.group != field.group || other.alternative == field.alternative) continue;
    if (other.in_list() && other.list_name() != field.list_name()) continue;
    const std::string other_path = other.PathAt(index);
    const auto stated = this_layer_.find(other_path);
    if (stated != this_layer_.end()) {
      issues_.Add(where, absl::StrCat(path, " and ", other_path, " (", stated->second,
                                      ") exclude each other; set only one of them"));
      issues_.MarkBad(path);
      issues_.MarkBad(other_path);
    }
    entries_.erase(other_path);
  }
}

void Draft::Erase(absl::string_view prefix) {
  auto it = entries_.lower_bound(std::string(prefix));
  while (it != entries_.end() && absl::StartsWith(it->first, prefix)) it = entries_.erase(it);
}

absl::StatusOr<Value> Draft::ResolvePaths(const Field& field, Value value) const {
  const std::string& folder = field.from_working_dir ? access_.working_dir : base_dir_;
  if (field.is_command) {
    auto& command = std::get<std::vector<std::string>>(value);
    if (!command.empty() && absl::StrContains(command[0], '/')) command[0] = AbsolutePath(command[0], folder);
    return value;
  }
  if (field.kind != Kind::kPath && field.kind != Kind::kGlobList) return value;
  if (auto* path = std::get_if<std::string>(&value)) {
    const bool is_word = std::count(field.keywords.begin(), field.keywords.end(), *path) > 0;
    if (is_word || !absl::EndsWith(*path, field.path_suffix)) return value;
    TRAINCTL_ASSIGN_OR_RETURN(const std::string expanded, ExpandVariables(*path, access_.environment));
    TRAINCTL_RETURN_IF_ERROR(RefuseUrl(expanded));
    *path = AbsolutePath(expanded, folder);
    if (!IsValidUtf8(*path)) return UsageError(absl::StrCat(*path, " is not valid UTF-8; rename the folder"));
  } else if (auto* paths = std::get_if<std::vector<std::string>>(&value)) {
    // Only the recipe's own text is a pattern. A value with "[" or "*" in it is the name of a folder or file.
    const Environment literal = [this](const std::string& name) {
      const std::optional<std::string> text = access_.environment(name);
      return text.has_value() ? std::optional<std::string>(LiteralPattern(*text)) : text;
    };
    for (std::string& pattern : *paths) {
      TRAINCTL_ASSIGN_OR_RETURN(const std::string expanded, ExpandVariables(pattern, literal));
      TRAINCTL_RETURN_IF_ERROR(RefuseUrl(TextOfPattern(expanded)));
      pattern = AbsolutePattern(expanded, folder);
    }
  }
  return value;
}

void Draft::AddSets(absl::Span<const std::string> sets) {
  this_layer_.clear();
  base_dir_ = access_.working_dir;
  is_set_ = true;
  for (const std::string& set : sets) AddSet(set);
  is_set_ = false;
}

void Draft::AddSet(const std::string& text) {
  const std::string where = absl::StrCat("--set ", OneLine(text));
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    issues_.Add(where, "expected KEY=VALUE, such as train.steps=100");
    return;
  }
  const std::string path(absl::StripAsciiWhitespace(text.substr(0, equals)));
  const std::string value(absl::StripAsciiWhitespace(text.substr(equals + 1)));
  const absl::StatusOr<SetPath> parsed = ParseSetPath(path);
  if (!parsed.ok()) {
    issues_.Add(where, parsed.status().message());
    return;
  }
  if (path == "recipe_version" || path == "extends") {
    issues_.Add(where, absl::StrCat(path, " can be set only in a file"));
    return;
  }
  const Schema& schema = GetSchema();
  const Field* field = schema.Find(parsed->name);
  std::string map_key;
  if (field == nullptr && absl::StartsWith(path, "launch.env.")) {
    field = schema.Find("launch.env");
    map_key = path.substr(field->name.size() + 1);
  }
  if (parsed->has_index) {
    const absl::string_view list = absl::string_view(path).substr(0, path.find('['));
    if (schema.IsList(list) && parsed->index >= ListSize(list)) {
      issues_.Add(where, absl::StrCat(list, " has ", ListSize(list),
                                      ListSize(list) == 1 ? " entry" : " entries", ", numbered from 0"));
      return;
    }
  }
  const bool is_known = field != nullptr || schema.IsTable(parsed->name) || schema.IsList(parsed->name);
  if (value == "default" && is_known) return TakeBack(path);
  const bool is_text =
      !map_key.empty() || (field != nullptr && (field->kind == Kind::kString || field->kind == Kind::kPath));
  absl::StatusOr<RawValue> raw = ReadSetValue(value, is_text, schema.IsTable(parsed->name), where);
  if (!raw.ok()) {
    issues_.Add(raw.status());
    issues_.MarkBad(path);
    return;
  }
  if (!map_key.empty()) {
    RawValue table;
    table.where = where;
    table.keys = {map_key};
    table.items = {*std::move(raw)};
    WalkMap(*field, table);
    return;
  }
  WalkItem(*raw, parsed->name, path, parsed->index);
}

void Draft::TakeBack(const std::string& path) {
  entries_.erase(path);
  this_layer_.erase(path);
  taken_back_.insert(path);
  Erase(absl::StrCat(path, "."));
  if (GetSchema().IsList(path)) {
    Erase(absl::StrCat(path, "["));
    lists_.erase(path);
  }
}

const Entry* Draft::Find(absl::string_view path) const {
  const auto it = entries_.find(std::string(path));
  return it == entries_.end() ? nullptr : &it->second;
}

std::string Draft::OriginOf(absl::string_view path, absl::string_view otherwise) const {
  const Entry* entry = Find(path);
  return entry == nullptr ? std::string(otherwise) : entry->origin;
}

size_t Draft::ListSize(absl::string_view list) const {
  const auto it = lists_.find(list);
  return it == lists_.end() ? 0 : it->second.where.size();
}

std::string Draft::EntryOrigin(absl::string_view list, size_t index) const {
  return lists_.find(list)->second.where.at(index);
}

void Draft::SeedList(absl::string_view list, size_t num_entries, absl::string_view origin) {
  lists_[std::string(list)].where.assign(num_entries, std::string(origin));
}

}  // namespace trainctl::recipe
