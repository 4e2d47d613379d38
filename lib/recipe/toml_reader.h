// TOML text to RawValue, with limits that hold before the parser recurses. Pure; thread safe.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "recipe/raw_value.h"

namespace trainctl::recipe {

inline constexpr int64_t kMaxRecipeBytes = 1 << 20;
// Levels of lists, inline tables and dotted keys. The schema needs six.
inline constexpr int kMaxNesting = 32;

// The file as one table. UsageError "<what>:line:column: ..." for text that is too long, nested too
// deep, not UTF-8 or not TOML.
absl::StatusOr<RawValue> ParseToml(absl::string_view text, absl::string_view what);

// One TOML value ("[1, 2]", "3e-4", "{a = 1}"), every part of it placed at `where`.
absl::StatusOr<RawValue> ParseTomlValue(absl::string_view text, absl::string_view where);

}  // namespace trainctl::recipe
