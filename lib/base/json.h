// JSON reading with limits and errors that say where; writing is nlohmann's own. Include this
// in .cc files; headers use json_fwd.hpp.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace trainctl {

using Json = nlohmann::ordered_json;

// Parses one JSON document of at most `max_depth` nested levels. `what` names it in errors
// ("runs/x/manifest.json"): BadDataError with line and column.
absl::StatusOr<Json> ParseJson(absl::string_view text, absl::string_view what, int max_depth = 64);

// One line, or with `indent` spaces per level. Bytes that are no UTF-8 become U+FFFD. DEL and the control
// characters U+0080 to U+009F, which a terminal may obey, are escaped as the others are.
std::string PrintableJson(const Json& json, int indent = -1);

// Typed access with an error instead of an exception: "<what>: field 'x' must be a string".
absl::StatusOr<int64_t> JsonInt(const Json& object, absl::string_view key, absl::string_view what);
absl::StatusOr<double> JsonDouble(const Json& object, absl::string_view key, absl::string_view what);
absl::StatusOr<bool> JsonBool(const Json& object, absl::string_view key, absl::string_view what);
absl::StatusOr<std::string> JsonString(const Json& object, absl::string_view key, absl::string_view what);

}  // namespace trainctl
