// Describes the schema's fields in words, for the reference page, the JSON Schema, and `recipe explain`.
// Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "recipe/schema.h"

namespace trainctl::recipe {

// Returns a field's default as text: "required", "`100`", "none", or a rule.
std::string DefaultText(const Field& field);
// Returns a sentence such as "More than 1 is not supported yet: ...".
std::string UnsupportedText(const Unsupported& unsupported);

// Describes a field or a table. A field may be written as "train.steps", "data.train[0].files",
// "data.train.files", or just "steps"; if several tables contain that last name, all of them are described.
// For a table ("train", "data.train"), lists its keys. Returns UsageError with the closest names if `key` is
// unknown.
absl::StatusOr<std::string> Explain(absl::string_view key);
// Like Explain, but returns a JSON object: {"schema": "trainctl.recipe-explain.v1", "key": ..., "fields":
// [...]}.
absl::StatusOr<std::string> ExplainJson(absl::string_view key);

// Returns up to `max_names` field and table names similar to the mistyped name, closest first.
std::vector<std::string> NearestNames(absl::string_view typed, size_t max_names);

}  // namespace trainctl::recipe
