// One field of the schema in words: what the reference, the JSON Schema and `recipe explain` have in common.
// Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "recipe/schema.h"

namespace trainctl::recipe {

// "required", "`100`", "none" or a rule.
std::string DefaultText(const Field& field);
// "More than 1 is an error for now: ..."
std::string UnsupportedText(const Unsupported& unsupported);

// What is known of `key`: a field ("train.steps", also "data.train[0].files", "data.train.files" and a bare
// "steps") or a table ("train", "data.train"), of which it lists the keys. Where several tables have a bare
// key, all of them. UsageError with the nearest names for what is nothing of this.
absl::StatusOr<std::string> Explain(absl::string_view key);
// The same as one JSON object: {"schema": "trainctl.recipe-explain.v1", "key": ..., "fields": [...]}.
absl::StatusOr<std::string> ExplainJson(absl::string_view key);

// At most `max_names` names of fields and tables that are near something typed wrong, the nearest first.
std::vector<std::string> NearestNames(absl::string_view typed, size_t max_names);

}  // namespace trainctl::recipe
