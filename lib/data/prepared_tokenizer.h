// Whether tokens were made by the tokenizer that a recipe names, and fit its model. Thread safe.
#pragma once

#include "absl/status/status.h"
#include "recipe/recipe.h"

namespace trainctl::data {

// Holds the tokenizer file of `data` against what `trainctl data prepare` wrote beside each of its indexed
// sets (PREFIX.json). UsageError that names both, where they differ. Nothing is said of "byte", of sets from
// elsewhere, which have no such file, and of a file that is of another PREFIX.bin.
absl::Status CheckPreparedTokenizer(const recipe::DataConfig& data);

// UsageError where a set's PREFIX.json says more ids than the model's `vocab`: such a run would end at the
// first of them, maybe after days. Sets without such a file are passed over as above.
absl::Status CheckPreparedVocab(const recipe::DataConfig& data, int64_t vocab);

}  // namespace trainctl::data
