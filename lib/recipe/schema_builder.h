// Helpers that build the rows of the schema. Used only by schema_fields.cc and schema_model_fields.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "recipe/schema.h"

namespace trainctl::recipe {

template <typename T>
struct MemberTraits {
  using Inner = T;
  static constexpr bool kOptional = false;
};
template <typename T>
struct MemberTraits<std::optional<T>> {
  using Inner = T;
  static constexpr bool kOptional = true;
};

template <typename T>
constexpr Kind KindOf() {
  if constexpr (std::is_same_v<T, bool>) return Kind::kBool;
  if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) return Kind::kInt;
  if constexpr (std::is_same_v<T, double>) return Kind::kDouble;
  if constexpr (std::is_same_v<T, std::string>) return Kind::kString;
  if constexpr (std::is_same_v<T, absl::Duration>) return Kind::kDuration;
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) return Kind::kIntList;
  if constexpr (std::is_same_v<T, std::vector<double>>) return Kind::kDoubleList;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return Kind::kStringList;
  if constexpr (std::is_same_v<T, StringMap>) return Kind::kStringMap;
}

template <typename T>
Value ToValue(const T& member) {
  if constexpr (MemberTraits<T>::kOptional) {
    return member.has_value() ? ToValue(*member) : Value(Auto{});
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return Value(static_cast<int64_t>(member));
  } else {
    return Value(member);
  }
}

template <typename T>
void FromValue(const Value& value, T& member) {
  if constexpr (MemberTraits<T>::kOptional) {
    if (std::holds_alternative<Auto>(value)) {
      member.reset();
    } else {
      FromValue(value, member.emplace());
    }
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    member = static_cast<uint64_t>(std::get<int64_t>(value));
  } else {
    member = std::get<T>(value);
  }
}

// A row under construction. Its methods read like the columns of a table.
class Row {
 public:
  explicit Row(Field& field) : field_(field) {}
  Row& Doc(std::string doc) { return field_.doc = std::move(doc), *this; }
  Row& Unit(const char* unit) { return field_.unit = unit, *this; }
  Row& AtLeast(double low) { return field_.min_value = low, *this; }
  Row& Above(double low) { return field_.above_min = true, AtLeast(low); }
  Row& AtMost(double high) { return field_.max_value = high, *this; }
  Row& Below(double high) { return field_.below_max = true, AtMost(high); }
  Row& Range(double low, double high) { return AtLeast(low), AtMost(high); }
  Row& OfKind(Kind kind) { return field_.kind = kind, *this; }
  Row& Choices(std::vector<std::string> choices) { return field_.choices = std::move(choices), *this; }
  Row& Path(std::vector<std::string> keywords = {}) {
    field_.keywords = std::move(keywords);
    return OfKind(Kind::kPath);
  }
  Row& PathEndingWith(const char* suffix) { return field_.path_suffix = suffix, Path(); }
  Row& Command() { return field_.is_command = true, *this; }
  Row& Length(int num_items) { return field_.list_length = num_items, *this; }
  Row& NeverEmpty() { return field_.never_empty = true, *this; }
  Row& OrOne() { return field_.takes_one = field_.never_empty = true, *this; }
  Row& FromWorkingDir() { return field_.from_working_dir = true, *this; }
  Row& AutoIs(const char* rule) { return field_.allow_auto = true, Default(rule); }
  Row& Default(std::string rule) { return field_.default_text = std::move(rule), *this; }
  Row& Required() { return field_.is_required = true, *this; }
  Row& BySet() { return field_.resume = Resume::kBySet, *this; }
  Row& Free() { return field_.resume = Resume::kFree, *this; }
  Row& Refuse(const char* value, const char* why) {
    return field_.unsupported.push_back({value, why}), *this;
  }
  // Restricts the field to recipes for which `applies` returns true. In others, it is neither shown nor
  // stored.
  Row& Where(std::function<bool(const Recipe&)> applies) {
    KeepInitial();
    field_.get = [get = field_.get, applies = std::move(applies)](const Recipe& recipe, size_t index) {
      return applies(recipe) ? get(recipe, index) : std::nullopt;
    };
    return *this;
  }
  // Treats an empty string, an empty list, or zero as unset; the field is then neither shown nor stored.
  Row& OmitEmpty() {
    KeepInitial();
    field_.get = [get = field_.get](const Recipe& recipe, size_t index) {
      std::optional<Value> value = get(recipe, index);
      if (*value == Value(std::string()) || *value == Value(std::vector<std::string>()) ||
          *value == Value(0.0)) {
        value.reset();
      }
      return value;
    };
    return *this;
  }
  Row& Accessors(decltype(Field::get) get, decltype(Field::set) set) {
    field_.get = std::move(get);
    field_.set = std::move(set);
    return *this;
  }
  Row& Group(const char* group, const char* alternative) {
    field_.group = group;
    field_.alternative = alternative;
    return *this;
  }

 private:
  // Before the first condition on what is shown.
  void KeepInitial() {
    if (!field_.get_hidden) field_.get_hidden = field_.get;
  }

  Field& field_;
};

class Builder {
 public:
  explicit Builder(std::vector<Field>& fields) : fields_(fields) {}

  // Adds a field of the recipe. `member` maps (Recipe&, index) to the corresponding member.
  template <typename Member>
  Row Add(absl::string_view name, const char* doc, Member member) {
    using T = std::remove_reference_t<std::invoke_result_t<Member, Recipe&, size_t>>;
    Row row = AddInput(name, doc, KindOf<typename MemberTraits<T>::Inner>());
    Field& field = fields_.back();
    field.get = [member](const Recipe& recipe, size_t index) -> std::optional<Value> {
      return ToValue(member(const_cast<Recipe&>(recipe), index));
    };
    field.set = [member](Recipe& recipe, size_t index, const Value& value) {
      FromValue(value, member(recipe, index));
    };
    return row;
  }

  // Adds a field that exists only as input and is converted to other fields on load.
  Row AddInput(absl::string_view name, const char* doc, Kind kind) {
    Field& field = fields_.emplace_back();
    field.name = std::string(name);
    field.doc = doc;
    field.kind = kind;
    return Row(field);
  }

 private:
  std::vector<Field>& fields_;
};

// Adds the fields whose names begin with "model.".
void AddModelFields(Builder& b);

}  // namespace trainctl::recipe
