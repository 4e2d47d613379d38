// Converts between RawValue, Value, and text. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "recipe/raw_value.h"
#include "recipe/schema.h"

namespace trainctl::recipe {

// The notation in which a value is written. Users must give units (kWritten), whereas stored recipes contain
// bytes as plain integers (kStored).
enum class Spelling : uint8_t { kWritten, kStored };

// Converts a raw value after checking its type, range, and choices. Errors begin with the field's path but do
// not include where it was set; the caller adds that.
absl::StatusOr<Value> ConvertValue(const Field& field, absl::string_view path, const RawValue& raw,
                                   Spelling spelling);

// Returns TOML text that ConvertValue converts back to the same value.
std::string ToTomlText(const Field& field, const Value& value);
bool IsValidUtf8(absl::string_view text);
std::string QuoteToml(absl::string_view text);
// Returns the shortest decimal representation that parses back to the same double.
std::string FormatDouble(double value);
std::string DurationText(absl::Duration duration);

// Describes a field's type and range for messages and the reference, such as "a whole number from 1 to 8".
std::string Describe(const Field& field);

}  // namespace trainctl::recipe
