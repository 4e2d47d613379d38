// Loads Hugging Face's tokenizer.json.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::tokenizer {

// Parses a tokenizer.json. A BadDataError begins with "<what>: <field> ".
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerJson(absl::string_view text, absl::string_view what);

}  // namespace trainctl::tokenizer
