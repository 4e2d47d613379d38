// Maps other trainers' keys, options, and commands to ours, for error messages about unknown names.
// Immutable; thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::recipe {

struct ForeignWord {
  const char* word;         // other trainer's option or key, in lower case with '_'
  const char* ours;         // equivalent recipe key or trainctl command; empty if there is none
  const char* advice = "";  // then: why, and what to do
};

// Returns the mapping of recipe keys, for example "per_device_train_batch_size" to "train.micro_batch".
absl::Span<const ForeignWord> ForeignKeys();
// Returns the mapping of commands, for example "train" to "launch".
absl::Span<const ForeignWord> ForeignVerbs();

// Returns the row for `typed`, or else for its last part ("training.global_batch_size"), or null. Ignores
// case and leading dashes, and treats '-' as '_'.
const ForeignWord* FindForeign(absl::string_view typed, absl::Span<const ForeignWord> words);

// Returns the recipe key to set for an option that no command has, for example "optimizer.lr" for "--lr" or
// "--learning-rate". Returns an empty string if there is none.
std::string KeyOfOption(absl::string_view typed);

}  // namespace trainctl::recipe
