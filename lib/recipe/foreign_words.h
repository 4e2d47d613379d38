// Words that people bring from other trainers, and what they are called here, for messages about unknown
// keys, options and verbs. Immutable; thread safe.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::recipe {

struct ForeignWord {
  const char* word;  // of another trainer's options or configuration, in lower case with '_'
  const char* ours;  // a key of a recipe, or a verb of trainctl
};

// Keys of recipes: "per_device_train_batch_size" is "train.micro_batch".
absl::Span<const ForeignWord> ForeignKeys();
// Verbs: "train" is "launch".
absl::Span<const ForeignWord> ForeignVerbs();

// Our name for `typed` according to `words`; case, leading dashes, and '-' instead of '_' do not
// count. Empty if nobody else has such a word.
absl::string_view OursFor(absl::string_view typed, absl::Span<const ForeignWord> words);

}  // namespace trainctl::recipe
