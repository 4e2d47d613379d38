// Extracts string fields from a line of JSONL. Parses only the requested fields. The rest of the line must
// only have the syntax accepted by Python's json.loads, which allows NaN, numbers too large for a double,
// duplicate keys, lone surrogates, and nesting of any depth. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl::data {

struct WantedField {
  absl::string_view name;
  std::string* value;  // set by ReadStringFields
};

// Reads the fields in `wanted`. `where` is "path:line", for error messages. Returns BadDataError with the
// column if the line is not an object, if a field is missing, duplicated, or not a string, or if a string is
// not valid JSON or UTF-8.
absl::Status ReadStringFields(absl::string_view line, absl::string_view where,
                              const std::vector<WantedField>& wanted);

// Returns the names of the fields of `line`, in order. Empty if the line is not a JSON object. If the object
// is malformed, the result may be empty or contain only the names before the error.
std::vector<std::string> FieldNames(absl::string_view line);

}  // namespace trainctl::data
