#include "tokenizer/json_fields.h"

#include "base/status.h"

namespace trainctl::tokenizer {

JsonPart JsonPart::At(absl::string_view key) const {
  JsonPart part{nullptr, absl::StrCat(where, where.empty() || where.back() == ' ' ? "" : ".", key)};
  if (value == nullptr || !value->is_object()) return part;
  const auto found = value->find(std::string(key));
  if (found != value->end()) part.value = &*found;
  return part;
}

JsonPart JsonPart::At(size_t index) const { return {&(*value)[index], absl::StrCat(where, "[", index, "]")}; }

absl::Status JsonPart::Bad(absl::string_view problem) const {
  return BadDataError(absl::StrCat(where, " ", problem));
}

absl::StatusOr<std::string> StringAt(const JsonPart& object, absl::string_view key) {
  const JsonPart part = object.At(key);
  if (part.is_null()) return part.Bad("is missing");
  if (!part.value->is_string()) return part.Bad("must be a string");
  return part.value->get<std::string>();
}

absl::StatusOr<std::string> StringAt(const JsonPart& object, absl::string_view key,
                                     absl::string_view or_else) {
  if (object.At(key).is_null()) return std::string(or_else);
  return StringAt(object, key);
}

absl::StatusOr<bool> BoolAt(const JsonPart& object, absl::string_view key, bool or_else) {
  const JsonPart part = object.At(key);
  if (part.is_null()) return or_else;
  if (!part.value->is_boolean()) return part.Bad("must be true or false");
  return part.value->get<bool>();
}

absl::StatusOr<int64_t> IntAt(const JsonPart& object, absl::string_view key) {
  const JsonPart part = object.At(key);
  if (part.is_null()) return part.Bad("is missing");
  if (!part.value->is_number_integer()) return part.Bad("must be a whole number");
  if (part.value->is_number_unsigned() && part.value->get<uint64_t>() > INT64_MAX)
    return part.Bad("is too large");
  return part.value->get<int64_t>();
}

absl::StatusOr<std::string> TypeOf(const JsonPart& part) {
  if (part.is_null() || !part.value->is_object()) return part.Bad("must be an object with a type");
  return StringAt(part, "type");
}

absl::Status RefuseField(const JsonPart& object, absl::string_view key) {
  const JsonPart part = object.At(key);
  if (part.is_null() || *part.value == false || *part.value == "") return absl::OkStatus();
  if (part.value->is_number() && part.value->get<double>() == 0) return absl::OkStatus();
  return part.Bad("is not supported");
}

}  // namespace trainctl::tokenizer
