// Starter recipes for `trainctl new`, a few lines each. Most comments are generated from the schema, so they
// never go out of date. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::recipe {

// A field set to `value` (TOML). If `is_comment`, the line is commented out, to show an option that keeps its
// default.
struct StarterLine {
  std::string key;  // for example "train.steps" or "data.train[0].files"
  // Empty means the field's default, which must be a value rather than a rule.
  std::string value;
  bool is_comment = false;
  std::string note = {};  // comment to add to the schema's
};

struct Starter {
  std::string name;                // for example "text"
  std::string summary;             // one-line description for --list and the top of the file
  std::string before;              // preparation steps; `{recipe}` is replaced by the recipe's file name
  std::vector<StarterLine> lines;  // fields of the same table must be adjacent
};

// Returns the starters in display order. `trainctl new` without a name uses the first one.
absl::Span<const Starter> Starters();
// Returns the starter with this name. Returns UsageError if there is none; the message lists all names,
// closest first.
absl::StatusOr<const Starter*> FindStarter(absl::string_view name);

// Returns the recipe's text. `file_name` appears in the first comment.
std::string StarterText(const Starter& starter, absl::string_view file_name);
// Returns Starter::before with the file name filled in.
std::string StarterBefore(const Starter& starter, absl::string_view file_name);

}  // namespace trainctl::recipe
