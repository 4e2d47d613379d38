#include "base/json.h"

#include <algorithm>

namespace trainctl {
namespace {

absl::Status FieldError(absl::string_view what, absl::string_view key, absl::string_view type) {
  return BadDataError(absl::StrCat(what, ": field '", key, "' is missing or not ", type));
}

const Json* Find(const Json& object, absl::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &*it;
}

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text, absl::string_view what, int max_depth) {
  bool too_deep = false;
  const auto limit = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > max_depth) too_deep = true;
    return !too_deep;
  };
  try {
    Json value = Json::parse(text.begin(), text.end(), limit);
    if (too_deep) return BadDataError(absl::StrCat(what, ": nested deeper than ", max_depth, " levels"));
    return value;
  } catch (const Json::parse_error& error) {
    const size_t offset = std::min(text.size(), error.byte > 0 ? error.byte - 1 : 0);
    const auto line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(offset), '\n') + 1;
    const size_t line_start = offset == 0 ? 0 : text.rfind('\n', offset - 1) + 1;
    return BadDataError(absl::StrCat(what, ":", line, ":", offset - line_start + 1, ": not valid JSON"));
  } catch (const Json::exception&) {  // a number that no double can hold
    return BadDataError(absl::StrCat(what, ": a number is out of range"));
  }
}

absl::StatusOr<int64_t> JsonInt(const Json& object, absl::string_view key, absl::string_view what) {
  const Json* field = Find(object, key);
  if (field == nullptr || !field->is_number_integer()) return FieldError(what, key, "an integer");
  if (field->is_number_unsigned() && field->get<uint64_t>() > uint64_t{INT64_MAX}) {
    return FieldError(what, key, "an integer below 2^63");
  }
  return field->get<int64_t>();
}

absl::StatusOr<double> JsonDouble(const Json& object, absl::string_view key, absl::string_view what) {
  const Json* field = Find(object, key);
  if (field == nullptr || !field->is_number()) return FieldError(what, key, "a number");
  return field->get<double>();
}

absl::StatusOr<bool> JsonBool(const Json& object, absl::string_view key, absl::string_view what) {
  const Json* field = Find(object, key);
  if (field == nullptr || !field->is_boolean()) return FieldError(what, key, "true or false");
  return field->get<bool>();
}

absl::StatusOr<std::string> JsonString(const Json& object, absl::string_view key, absl::string_view what) {
  const Json* field = Find(object, key);
  if (field == nullptr || !field->is_string()) return FieldError(what, key, "a string");
  return field->get<std::string>();
}

}  // namespace trainctl
