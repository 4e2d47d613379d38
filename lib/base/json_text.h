// Changes a JSON file without reformatting it. Pure; thread-safe.
//
//   text = WithJsonField(text, "vocab_size", 512);
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/json_fwd.h"

namespace trainctl {

// Returns `text` with a new value for a field of its outermost object. Keeps all other bytes, including the
// order of the fields, the spelling of numbers, and white space. Appends the field, indented like the others,
// if the object does not have it. `text` must be a JSON object that ParseJson accepts.
std::string WithJsonField(absl::string_view text, absl::string_view key, const Json& value);

}  // namespace trainctl
