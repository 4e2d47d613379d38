#include "base/json.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/strict_json.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;

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
  StrictJsonBuilder builder(text, what, max_depth);
  if (SendJsonEvents(text, builder)) return builder.Take();
  return builder.status();
}

Json ParseValidJson(absl::string_view text) { return ParseJson(text, "JSON").value(); }

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

std::string FormatJson(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string FormatAsciiJson(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

absl::StatusOr<std::string> FormatExactJson(const Json& json) {
  try {
    return json.dump();
  } catch (const Json::exception& error) {
    return BadDataError(absl::StrCat("cannot be written as JSON: ", error.what()));
  }
}

std::string PrintableJson(const Json& json, int indent) {
  const std::string text = FormatJson(json, indent);
  std::string printable;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are 0xc2 and a byte of that number.
    const bool is_pair =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_pair) ++i;
    if (is_pair || byte == 0x7f) {
      absl::StrAppendFormat(&printable, "\\u%04x", static_cast<unsigned char>(text[i]));
    } else {
      printable += text[i];
    }
  }
  return printable;
}

}  // namespace trainctl
