#include "base/json.h"

#include "base/strict_json.h"

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
  return ParseStrictJson<Json>(text, what, max_depth);
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
