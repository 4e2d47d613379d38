// Fields of a tokenizer.json, with errors that name them. For .cc files only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

using FileJson = nlohmann::json;

// An object (or null, for a part that is not there) and where it stands: "x/tokenizer.json: pre_tokenizer".
struct JsonPart {
  const FileJson* value = nullptr;
  std::string where;

  bool is_null() const { return value == nullptr || value->is_null(); }
  // The member, null when it is not there.
  JsonPart At(absl::string_view key) const;
  JsonPart At(size_t index) const;

  // "<where>: <problem>"
  absl::Status Bad(absl::string_view problem) const;
};

// The member as its type; the default where it is missing or null.
absl::StatusOr<std::string> StringAt(const JsonPart& object, absl::string_view key);
absl::StatusOr<std::string> StringAt(const JsonPart& object, absl::string_view key,
                                     absl::string_view or_else);
absl::StatusOr<bool> BoolAt(const JsonPart& object, absl::string_view key, bool or_else);
absl::StatusOr<int64_t> IntAt(const JsonPart& object, absl::string_view key);

// The member "type" of a part.
absl::StatusOr<std::string> TypeOf(const JsonPart& part);

// BadDataError where the member is there and neither null, false, 0 nor "".
absl::Status RefuseField(const JsonPart& object, absl::string_view key);

}  // namespace trainctl::tokenizer
