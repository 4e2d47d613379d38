// Between RawValue, Value and the text of a Value. Pure; thread safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "recipe/raw_value.h"
#include "recipe/schema.h"

namespace trainctl::recipe {

// Where the value comes from decides its spelling: a person must give units, a stored recipe has
// plain integers for bytes.
enum class Spelling : uint8_t { kWritten, kStored };

// Type, range and choices of one value. The message of a failure starts with the field's
// path and has no place; the caller adds it.
absl::StatusOr<Value> ConvertValue(const Field& field, absl::string_view path, const RawValue& raw,
                                   Spelling spelling);

// TOML text that ConvertValue reads back to the same value.
std::string ToTomlText(const Field& field, const Value& value);
bool IsValidUtf8(absl::string_view text);
std::string QuoteToml(absl::string_view text);
// The shortest decimal that reads back to the same double.
std::string FormatDouble(double value);
std::string DurationText(absl::Duration duration);

// "a whole number from 1 to 8": the type and range of a field, for messages and the reference.
std::string Describe(const Field& field);

}  // namespace trainctl::recipe
