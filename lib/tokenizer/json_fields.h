// Reads the fields of a tokenizer.json and names them in errors. Include only from .cc files.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/json.h"

namespace trainctl::tokenizer {

// A JSON value (null if it is absent) and its location, for example "x/tokenizer.json: pre_tokenizer".
struct JsonPart {
  const Json* value = nullptr;
  std::string where;

  bool is_null() const { return value == nullptr || value->is_null(); }
  // Returns the member or element, or null if it is absent.
  JsonPart At(absl::string_view key) const;
  JsonPart At(size_t index) const;

  // Returns the BadDataError "<where>: <problem>".
  absl::Status Bad(absl::string_view problem) const;
};

// Return a member of this type, or `or_else` if it is missing or null. Return BadDataError if it has another
// type.
absl::StatusOr<std::string> StringAt(const JsonPart& object, absl::string_view key);
absl::StatusOr<std::string> StringAt(const JsonPart& object, absl::string_view key,
                                     absl::string_view or_else);
absl::StatusOr<bool> BoolAt(const JsonPart& object, absl::string_view key, bool or_else);
absl::StatusOr<int64_t> IntAt(const JsonPart& object, absl::string_view key);

// Returns the member "type" of a part.
absl::StatusOr<std::string> TypeOf(const JsonPart& part);

// Rejects an unsupported field: returns BadDataError unless the member is absent, null, false, 0 or "".
absl::Status RefuseField(const JsonPart& object, absl::string_view key);

}  // namespace trainctl::tokenizer
