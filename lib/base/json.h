// Parses JSON with limits and with errors that include the location. Use nlohmann's own functions for
// writing. Include this header only in .cc files; headers use json_fwd.hpp.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace trainctl {

using Json = nlohmann::ordered_json;

// Parses a JSON document with up to `max_depth` nested levels. `what` names it in errors, for example
// "runs/x/manifest.json". Returns BadDataError with the line and column if the text is invalid.
absl::StatusOr<Json> ParseJson(absl::string_view text, absl::string_view what, int max_depth = 64);

// Formats `json` on one line, or with `indent` spaces per level. Replaces bytes that are not UTF-8 by U+FFFD.
// Also escapes DEL and the control characters U+0080 to U+009F, which some terminals interpret.
std::string PrintableJson(const Json& json, int indent = -1);

// Typed field access. The error for a missing field or a wrong type is "<what>: field 'x' must be a string".
absl::StatusOr<int64_t> JsonInt(const Json& object, absl::string_view key, absl::string_view what);
absl::StatusOr<double> JsonDouble(const Json& object, absl::string_view key, absl::string_view what);
absl::StatusOr<bool> JsonBool(const Json& object, absl::string_view key, absl::string_view what);
absl::StatusOr<std::string> JsonString(const Json& object, absl::string_view key, absl::string_view what);

}  // namespace trainctl
