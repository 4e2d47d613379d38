// Whether tokens were made by the tokenizer that a recipe names. Thread safe.
#pragma once

#include "absl/status/status.h"
#include "recipe/recipe.h"

namespace trainctl::data {

// Holds the tokenizer file of `data` against what `trainctl data prepare` wrote beside each of its indexed
// sets (PREFIX.json). UsageError that names both, where they differ. Nothing is said of "byte", of sets from
// elsewhere, which have no such file, and of a file that is of another PREFIX.bin.
absl::Status CheckPreparedTokenizer(const recipe::DataConfig& data);

}  // namespace trainctl::data
