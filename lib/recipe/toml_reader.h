// Parses TOML text into a RawValue. Limits are enforced before the parser recurses. Pure; thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "recipe/raw_value.h"

namespace trainctl::recipe {

inline constexpr int64_t kMaxRecipeBytes = 1 << 20;
// The maximum nesting depth of lists, inline tables, and dotted keys. The schema needs six.
inline constexpr int kMaxNesting = 32;

// Parses a file into a table. Returns UsageError, "<what>:line:column: ...", if the text is too long, nested
// too deeply, or not valid UTF-8 or TOML.
absl::StatusOr<RawValue> ParseToml(absl::string_view text, absl::string_view what);

// Parses a single TOML value, such as "[1, 2]", "3e-4", or "{a = 1}". Every part of it gets the location
// `where`.
absl::StatusOr<RawValue> ParseTomlValue(absl::string_view text, absl::string_view where);

}  // namespace trainctl::recipe
