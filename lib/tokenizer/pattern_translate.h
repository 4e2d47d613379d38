// From Oniguruma's syntax (Ruby, UTF-8) to that of PCRE2 (UTF, MULTILINE).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/stand_ins.h"

namespace trainctl::tokenizer {

struct TranslatedPattern {
  std::string pcre2;  // names no property of Unicode
  // Converts a text to what `pcre2` must see. Null if that is the text itself.
  std::shared_ptr<const StandIns> stand_ins;
};

// `what` names the field in errors. BadDataError: a pattern that the two read differently, or one of only
// Oniguruma.
absl::StatusOr<TranslatedPattern> TranslatePattern(absl::string_view oniguruma, absl::string_view what);

}  // namespace trainctl::tokenizer
