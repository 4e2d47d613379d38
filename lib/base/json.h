// Parses and formats JSON. These functions, rather than nlohmann's own, compile the library's parser and
// formatter once and not in each source. Include this header only in .cc files; headers use base/json_fwd.h.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "base/json_fwd.h"
#include "base/status.h"

extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace trainctl {

// Parses a JSON document with up to `max_depth` nested levels, in linear time. `what` names it in errors, for
// example "runs/x/manifest.json". Returns BadDataError, with the line and column where possible, if the text
// is not valid JSON, repeats a key of an object, or is nested more deeply.
absl::StatusOr<Json> ParseJson(absl::string_view text, absl::string_view what, int max_depth = 64);

// Parses a text that ParseJson is known to accept. Throws absl::BadStatusOrAccess if it does not.
Json ParseValidJson(absl::string_view text);

// Formats `json` on one line, or with `indent` spaces per level. Replaces bytes that are not UTF-8 by U+FFFD.
std::string FormatJson(const Json& json, int indent = -1);

// Does the same, and escapes all characters that are not ASCII.
std::string FormatAsciiJson(const Json& json, int indent = -1);

// Does the same as FormatJson, and escapes DEL and the control characters U+0080 to U+009F, which some
// terminals interpret.
std::string PrintableJson(const Json& json, int indent = -1);

// Formats `json` on one line. Returns BadDataError if a string is not valid UTF-8.
absl::StatusOr<std::string> FormatExactJson(const Json& json);

// Typed field access. The error for a missing field or a wrong type is "<what>: field 'x' must be a string".
absl::StatusOr<int64_t> JsonInt(const Json& object, absl::string_view key, absl::string_view what);
absl::StatusOr<double> JsonDouble(const Json& object, absl::string_view key, absl::string_view what);
absl::StatusOr<bool> JsonBool(const Json& object, absl::string_view key, absl::string_view what);
absl::StatusOr<std::string> JsonString(const Json& object, absl::string_view key, absl::string_view what);

}  // namespace trainctl
