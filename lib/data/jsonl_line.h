// String fields of one line of JSONL. Parses only the requested fields. The rest of the line needs only the
// syntax that Python's json.loads accepts: NaN, numbers too large for a double, duplicate keys, lone
// surrogates and nesting of any depth are fine. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl::data {

struct WantedField {
  absl::string_view name;
  std::string* value;  // is set
};

// `where` is "path:line", for messages. BadDataError with the column for a line that is not an object, for a
// field that is missing, given twice or not a string, and for a string that is not valid JSON or UTF-8.
absl::Status ReadStringFields(absl::string_view line, absl::string_view where,
                              const std::vector<WantedField>& wanted);

}  // namespace trainctl::data
