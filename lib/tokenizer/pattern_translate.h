// Translates Oniguruma patterns (Ruby syntax, UTF-8) to PCRE2 patterns (with the options UTF and MULTILINE).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/stand_ins.h"

namespace trainctl::tokenizer {

struct TranslatedPattern {
  std::string pcre2;  // pattern that uses no Unicode properties
  // Converts a text before `pcre2` is matched against it. Null if the text needs no conversion.
  std::shared_ptr<const StandIns> stand_ins;
};

// Translates a pattern. Returns BadDataError if PCRE2 cannot match exactly what Oniguruma would. `what` names
// the field in errors.
absl::StatusOr<TranslatedPattern> TranslatePattern(absl::string_view oniguruma, absl::string_view what);

}  // namespace trainctl::tokenizer
