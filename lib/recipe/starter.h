// Recipes to begin with, for `trainctl new`: a few lines of values each; every comment comes from the schema,
// so that it is never behind it. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::recipe {

// One field: at `value` (TOML), or, where `is_comment`, shown as a choice that is left at its default.
struct StarterLine {
  const char* key;    // "train.steps", "data.train[0].files"
  const char* value;  // null: the field's default, which then is a value and not a rule
  bool is_comment = false;
};

struct Starter {
  const char* name;     // "text"
  const char* summary;  // one line, for --list and the head of the file
  const char* before;   // what has to be there before the recipe can be used; with `{recipe}` for its name
  std::vector<StarterLine> lines;  // the fields of one table stand together
};

// In the order in which they are listed; the first is what `trainctl new` takes without a name.
absl::Span<const Starter> Starters();
// UsageError with all names, and the nearest first.
absl::StatusOr<const Starter*> FindStarter(absl::string_view name);

// The recipe's text; `file_name` is what its first comment calls it.
std::string StarterText(const Starter& starter, absl::string_view file_name);
// Starter::before for that file.
std::string StarterBefore(const Starter& starter, absl::string_view file_name);

}  // namespace trainctl::recipe
